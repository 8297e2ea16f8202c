use super::files::{Files, cpus_of_list, cpus_of_mask, mask_of};
use super::*;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of a machine that does not exist, removed with this value.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Machine {
        let root = std::env::temp_dir().join(format!("upcall-{name}-{}", std::process::id()));
        fs::create_dir(&root).unwrap();
        Machine(root)
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn link(&self, path: &str, to: &Path) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, path).unwrap();
    }

    fn files(&self) -> Files {
        let folder = |name| self.0.join(name);
        Files { sys: folder("sys"), proc: folder("proc"), interface: "no-such-if".to_owned() }
    }

    /// An interface with the index 4, 2 queues and no RPS.
    fn with_interface(name: &str) -> Machine {
        let machine = Machine::new(name);
        machine.write("sys/class/net/no-such-if/ifindex", "4\n");
        machine.write("sys/class/net/no-such-if/iflink", "4\n");
        machine.write("sys/class/net/no-such-if/type", "1\n");
        machine.write("sys/class/net/no-such-if/threaded", "0\n");
        machine.write("sys/class/net/no-such-if/queues/rx-0/rps_cpus", "0\n");
        machine.write("sys/class/net/no-such-if/queues/rx-1/rps_cpus", "0\n");
        machine.write("sys/class/net/no-such-if/queues/tx-0/xps_cpus", "3\n");
        machine
    }

    /// Gives the interface a virtio device like that of a cloud machine.
    fn with_virtio(&self) {
        self.write("sys/devices/pci/msi_irqs/37", "msix\n");
        self.write("sys/devices/pci/msi_irqs/38", "msix\n");
        self.write("sys/devices/pci/msi_irqs/39", "msix\n");
        self.write("sys/kernel/irq/37/actions", "virtio2-config\n");
        self.write("sys/kernel/irq/38/actions", "virtio2-input.0\n");
        self.write("sys/kernel/irq/39/actions", "virtio2-output.0\n");
        self.write("proc/irq/37/effective_affinity_list", "0\n");
        self.write("proc/irq/38/effective_affinity_list", "1\n");
        self.write("proc/irq/39/effective_affinity_list", "2\n");
        self.write("sys/devices/pci/virtio2/device", "0x1\n");
        self.link("sys/class/net/no-such-if/device", &self.0.join("sys/devices/pci/virtio2"));
        self.link("sys/devices/pci/virtio2/driver", &self.0.join("sys/bus/drivers/virtio_net"));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_device_is_polled_on_the_cpu_of_its_receive_interrupt() {
    let machine = Machine::with_interface("interrupt");
    machine.with_virtio();
    let found = machine.files().placement(4).unwrap();
    let expected = Placement {
        driver: "virtio_net".to_owned(),
        veth_peer: None,
        napi_threads: vec![],
        interrupts: vec![38],
        rps_cpus: vec![],
        poll: Cpus::Listed(vec![1]),
    };
    assert_eq!(found, expected);
    let line = "drops run on CPU 1 (virtio_net, native, interrupt 38)";
    assert_eq!(found.line(Mode::Native), line);
    assert!(found.poll.may_include(1) && !found.poll.may_include(0));
    // An interrupt that is not in use yet.
    machine.write("proc/irq/38/effective_affinity_list", "\n");
    machine.write("proc/irq/38/smp_affinity_list", "0-2,7\n");
    let found = machine.files().placement(4).unwrap();
    assert_eq!(found.poll, Cpus::Listed(vec![0, 1, 2, 7]));
    fs::remove_file(machine.0.join("proc/irq/38/smp_affinity_list")).unwrap();
    assert_eq!(machine.files().placement(4).unwrap().poll, Cpus::Unknown);
}

#[test]
fn rps_moves_generic_drops_and_the_work_after_native_ones() {
    let machine = Machine::with_interface("rps");
    machine.with_virtio();
    machine.write("sys/class/net/no-such-if/queues/rx-1/rps_cpus", "00000001,00000009\n");
    let found = machine.files().placement(4).unwrap();
    assert_eq!(found.rps_cpus, [0, 3, 32]);
    assert_eq!(found.early_drop(Mode::Native), Cpus::Listed(vec![1]));
    assert_eq!(found.early_drop(Mode::Generic), Cpus::Listed(vec![0, 3, 32]));
    assert_eq!(
        found.line(Mode::Native),
        "drops run on CPU 1 (virtio_net, native, interrupt 38), the kernel's further receive work \
         on CPUs 0, 3, 32"
    );
    assert_eq!(
        found.line(Mode::Generic),
        "drops run on CPUs 0, 3, 32 (virtio_net, generic, interrupt 38)"
    );
}

#[test]
fn threads_that_poll_decide_where() {
    let machine = Machine::with_interface("threads");
    machine.with_virtio();
    for (pid, name, cpus) in [
        (20, "napi/no-such-if-8193", "0"),
        (21, "napi/no-such-if-8194", "2-3"),
        (22, "napi/no-such-if-x-8195", "5"),
        (23, "napi/other-8196", "6"),
    ] {
        machine.write(&format!("proc/{pid}/comm"), &format!("{name}\n"));
        let status = format!("Name:\t{name}\nCpus_allowed_list:\t{cpus}\n");
        machine.write(&format!("proc/{pid}/status"), &status);
    }
    assert_eq!(machine.files().placement(4).unwrap().napi_threads, [0_u32; 0]);
    machine.write("sys/class/net/no-such-if/threaded", "1\n");
    let found = machine.files().placement(4).unwrap();
    assert_eq!((&*found.napi_threads, &found.poll), (&[20, 21][..], &Cpus::Listed(vec![0, 2, 3])));
    let line = "drops run on CPUs 0, 2, 3 (virtio_net, native, NAPI threads 20, 21)";
    assert_eq!(found.line(Mode::Native), line);
}

#[test]
fn an_interface_of_another_network_is_not_taken_for_ours() {
    let machine = Machine::with_interface("other");
    let error = machine.files().placement(5).unwrap_err();
    assert_eq!(error.raw_os_error(), libc::ENODEV);
    // Without device, interrupts and an answer of the kernel nothing is known.
    let found = machine.files().placement(4).unwrap();
    assert_eq!((&*found.driver, &found.poll), ("", &Cpus::Unknown));
    assert!(found.poll.may_include(7));
    let line = "drops run on an unknown CPU (unknown driver, native)";
    assert_eq!(found.line(Mode::Native), line);
}

#[test]
fn a_change_is_taken_back() {
    let machine = Machine::with_interface("change");
    let queue = |at| machine.0.join(format!("sys/class/net/no-such-if/queues/rx-{at}/rps_cpus"));
    fs::write(queue(1), "2\n").unwrap();
    let change = machine.files().set_rps_cpus(&[0, 33]).unwrap();
    assert_eq!(change.old_values().collect::<Vec<_>>(), ["0", "2"]);
    assert_eq!(fs::read_to_string(queue(0)).unwrap(), "00000002,00000001");
    assert_eq!(fs::read_to_string(queue(1)).unwrap(), "00000002,00000001");
    change.restore().unwrap();
    assert_eq!(fs::read_to_string(queue(0)).unwrap(), "0");
    assert_eq!(fs::read_to_string(queue(1)).unwrap(), "2");
    // The second queue fails, so the first one is as before.
    fs::remove_file(queue(1)).unwrap();
    fs::create_dir(queue(1)).unwrap();
    let refused = machine.files().set_rps_cpus(&[1]).unwrap_err();
    assert_eq!(refused.raw_os_error(), libc::EISDIR);
    assert_eq!(fs::read_to_string(queue(0)).unwrap(), "0");
    let change = machine.files().set_threaded(true).unwrap();
    assert_eq!(machine.files().set_threaded(true).unwrap().old_values().next(), Some("1"));
    change.restore().unwrap();
    assert_eq!(machine.files().set_threaded(true).unwrap().old_values().next(), Some("0"));
}

#[test]
fn lists_and_masks_are_read() {
    assert_eq!(cpus_of_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
    assert_eq!(cpus_of_list("\n"), Some(vec![]));
    assert_eq!(cpus_of_list("a"), None);
    assert_eq!(cpus_of_mask("ff\n"), [0, 1, 2, 3, 4, 5, 6, 7]);
    for cpus in [vec![], vec![0], vec![31, 32], vec![5, 64, 1023]] {
        assert_eq!(cpus_of_mask(&mask_of(&cpus)), cpus);
    }
}

#[test]
fn this_machine_is_read() {
    let found = Placement::of("lo").unwrap();
    assert_eq!((&*found.driver, &found.poll), ("loopback", &Cpus::Senders));
    let none = Placement::of("no-such-if").unwrap_err();
    assert_eq!(none.raw_os_error(), libc::ENODEV);
    assert!(set_rps_cpus("no-such-if", &[0]).is_err());
}
