use super::message::GroupMessage::{Query, Report as Reported};
use super::*;
use crate::flow::ICMPV6;
use crate::packet::{Frame, LinkAddress, check, parse};
use proptest::prelude::*;
use smoltcp::wire::{Icmpv6Packet, IgmpPacket, IgmpRepr, IgmpVersion, Ipv4Packet};

const LINK: LinkAddress = [2, 0, 0, 0, 0, 1];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ms(ms: u64) -> Instant {
    Instant::ZERO + Span::from_millis(ms)
}

/// The reports until `end`, each with the millisecond in which it came.
fn reports(all: &mut Memberships, begin: u64, end: u64) -> Vec<(u64, Kind, bool)> {
    let mut found = Vec::new();
    for now in begin..end {
        while let Some(report) = all.next_report(ms(now)) {
            found.push((now, report.kind, report.is_v1));
        }
        assert!(all.wake() > ms(now));
    }
    found
}

fn kinds(reports: &[(u64, Kind, bool)]) -> Vec<Kind> {
    reports.iter().map(|(_, kind, _)| *kind).collect()
}

fn query(text: &str, group: Option<&str>, answer_ms: u64, is_v1: bool) -> GroupMessage {
    let answer_max = Span::from_millis(answer_ms);
    Query { family_of: ip(text), group: group.map(ip), answer_max, is_v1 }
}

#[test]
fn joins_and_leaves_are_counted_and_reported() {
    for (text, within, leaves) in [("239.1.2.3", 10_000, 1), ("ff0e::5", 1_000, 2)] {
        let mut all = Memberships::new(7);
        let group = ip(text);
        assert_eq!(all.leave(group, ms(0)), Err(MembershipError::NotJoined));
        for _ in 0..2 {
            all.join(group, ms(0)).unwrap();
        }
        let joined = reports(&mut all, 0, 60_000);
        assert_eq!(kinds(&joined), [Kind::Joined; 2]);
        assert!(joined[0].0 == 0 && (1..=within).contains(&joined[1].0), "{joined:?}");
        all.leave(group, ms(60_000)).unwrap();
        assert_eq!((reports(&mut all, 60_000, 61_000), all.is_member(group)), (vec![], true));
        all.leave(group, ms(61_000)).unwrap();
        assert!(!all.is_member(group));
        assert_eq!(all.leave(group, ms(61_000)), Err(MembershipError::NotJoined));
        assert_eq!(kinds(&reports(&mut all, 61_000, 99_000)), vec![Kind::Left; leaves]);
        assert_eq!((all.groups.len(), all.wake()), (0, Instant::FAR));
    }
}

#[test]
fn who_joins_again_while_leaving_stays() {
    let mut all = Memberships::new(7);
    let group = ip("ff0e::5");
    all.join(group, ms(0)).unwrap();
    reports(&mut all, 0, 5_000);
    all.leave(group, ms(5_000)).unwrap();
    assert_eq!(all.next_report(ms(5_000)).unwrap().kind, Kind::Left);
    all.join(group, ms(5_000)).unwrap();
    assert_eq!(kinds(&reports(&mut all, 5_000, 9_000)), [Kind::Joined; 2]);
    assert!(all.is_member(group));
}

#[test]
fn the_groups_of_all_hosts_are_never_reported() {
    let mut all = Memberships::new(7);
    for text in ["224.0.0.1", "ff02::1", "ff01::5", "ff00::5"] {
        all.join(ip(text), ms(0)).unwrap();
        assert!(all.is_member(ip(text)));
    }
    for text in ["0.0.0.0", "::"] {
        all.learn(query(text, None, 10, false), ms(0));
    }
    assert_eq!(reports(&mut all, 0, 1_000), []);
    for text in ["224.0.0.1", "ff02::1", "ff01::5", "ff00::5"] {
        all.leave(ip(text), ms(0)).unwrap();
        assert_eq!(all.is_member(ip(text)), ["224.0.0.1", "ff02::1"].contains(&text));
    }
    assert!(all.groups.is_empty());
    assert_eq!(all.join(ip("10.0.0.1"), ms(0)), Err(MembershipError::NotAGroup));
}

/// A table with two groups of each family, long after they were reported.
fn settled() -> Memberships {
    let mut all = Memberships::new(7);
    for text in ["239.1.2.3", "239.1.2.4", "ff0e::5", "ff0e::6"] {
        all.join(ip(text), ms(0)).unwrap();
    }
    assert_eq!(reports(&mut all, 0, 60_000).len(), 8);
    all
}

#[test]
fn queries_are_answered_within_their_time() {
    for (any, one) in [("0.0.0.0", "239.1.2.3"), ("::", "ff0e::5")] {
        let mut all = settled();
        all.learn(query(any, None, 5_000, false), ms(60_000));
        let found = reports(&mut all, 60_000, 80_000);
        assert_eq!(kinds(&found), [Kind::Present; 2]);
        assert!(found.iter().all(|(at, ..)| (60_001..=65_000).contains(at)), "{found:?}");
        assert_ne!(found[0].0, found[1].0);
        // A second query does not make the answer later.
        all.learn(query(any, Some(one), 100, false), ms(80_000));
        all.learn(query(any, None, 100_000, false), ms(80_001));
        let found = reports(&mut all, 80_000, 200_000);
        assert!(found.len() == 2 && found[0].0 <= 80_100, "{found:?}");
        all.learn(query(any, Some("239.9.9.9"), 100, false), ms(200_000));
        assert_eq!(reports(&mut all, 200_000, 210_000), []);
    }
}

#[test]
fn an_older_router_gets_older_reports_for_a_time() {
    for (any, one, seconds) in [("0.0.0.0", "239.1.2.3", 400), ("::", "ff0e::5", 260)] {
        let mut all = settled();
        all.learn(query(any, Some(one), 1_000, true), ms(60_000));
        assert_eq!(kinds(&reports(&mut all, 60_000, 62_000)), [Kind::Present]);
        let last = 60_000 + seconds * 1_000;
        for (now, is_v1) in [(last - 2_000, true), (last, false)] {
            all.learn(query(any, Some(one), 1_000, false), ms(now));
            let found = reports(&mut all, now, now + 1_001);
            assert!(found.len() == 1 && found[0].2 == is_v1, "{found:?}");
        }
    }
    // IGMPv1 has no leave.
    let mut all = settled();
    all.learn(query("0.0.0.0", None, 1, true), ms(60_000));
    reports(&mut all, 60_000, 61_000);
    all.leave(ip("239.1.2.3"), ms(61_000)).unwrap();
    assert_eq!((reports(&mut all, 61_000, 99_000), all.groups.len()), (vec![], 3));
}

#[test]
fn the_report_of_another_host_takes_the_place_of_ours_under_the_older_protocols() {
    let mut all = settled();
    all.learn(query("0.0.0.0", None, 1_000, false), ms(60_000));
    all.learn(Reported { group: ip("239.1.2.3") }, ms(60_000));
    assert_eq!(reports(&mut all, 60_000, 62_000).len(), 1);
    // Not under MLDv2.
    for (is_v1, expected) in [(false, 2), (true, 1)] {
        all.learn(query("::", None, 1_000, is_v1), ms(62_000));
        all.learn(Reported { group: ip("ff0e::5") }, ms(62_000));
        assert_eq!(reports(&mut all, 62_000, 64_000).len(), expected);
    }
}

#[test]
fn the_table_is_bounded_and_leaving_groups_give_way() {
    let mut all = Memberships::new(7);
    let group = |number: u16| IpAddr::V6(Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, number));
    let max = u16::try_from(GROUPS_MAX).unwrap();
    for number in 0..max {
        all.join(group(number), ms(0)).unwrap();
    }
    assert_eq!(all.join(group(max), ms(0)), Err(MembershipError::TooManyGroups));
    all.leave(group(3), ms(0)).unwrap();
    assert_eq!(all.join(group(max), ms(0)), Ok(()));
    assert_eq!((all.groups.len(), all.groups.capacity()), (GROUPS_MAX, GROUPS_MAX));
    assert!(all.is_member(group(max)) && !all.is_member(group(3)));
}

/// A written report, read by smoltcp: the receiver, and the type of the message with its group.
fn written(text: &str, source: &str, kind: Kind, is_v1: bool) -> (IpAddr, u8, Vec<u8>) {
    let (group, mut out) = (ip(text), [0xaa; 200]);
    let report = Report { group, kind, is_v1 };
    let length = write(&mut out, report, LINK, ip(source)).unwrap();
    assert!(write(&mut [0; 40], report, LINK, ip(source)).is_err());
    let Ok(Frame::Ip(headers)) = parse(&out[..length]) else { panic!("{report:?}") };
    assert_eq!(check(&out, &headers), Ok(()));
    assert_eq!((headers.packet.end, out[0] & 1), (length, 1));
    let to = headers.destination.address.to_canonical();
    let message = &out[headers.transport.clone()];
    if group.is_ipv4() {
        let ip = Ipv4Packet::new_checked(&out[14..length]).unwrap();
        assert_eq!((ip.hop_limit(), &out[34..38]), (1, &[0x94, 4, 0, 0][..]));
        assert!(IgmpPacket::new_checked(message).unwrap().verify_checksum());
    } else {
        assert_eq!((out[21], &out[54..62]), (1, &[58, 0, 5, 2, 0, 0, 1, 0][..]));
    }
    (to, message[0], message.to_vec())
}

#[test]
fn reports_have_their_form() {
    use Kind::{Joined, Left, Present};
    let own = "10.0.0.1";
    for (kind, is_v1, to, kind_byte) in [
        (Joined, false, "239.1.2.3", 0x16),
        (Present, false, "239.1.2.3", 0x16),
        (Joined, true, "239.1.2.3", 0x12),
        (Left, false, "224.0.0.2", 0x17),
    ] {
        let (found, first, message) = written("239.1.2.3", own, kind, is_v1);
        assert_eq!((found, first, &message[4..]), (ip(to), kind_byte, &[239, 1, 2, 3][..]));
    }
    let group: Ipv6Addr = "ff0e::5".parse().unwrap();
    for source in ["fe80::1", "::"] {
        for (kind, record) in [(Joined, 4), (Present, 2), (Left, 3)] {
            let (to, first, message) = written("ff0e::5", source, kind, false);
            assert_eq!((to, first), (ip("ff02::16"), 143));
            assert_eq!(message[4..12], [0, 0, 0, 1, record, 0, 0, 0]);
            assert_eq!(message[12..], group.octets());
        }
        for (kind, to, kind_byte) in [(Joined, "ff0e::5", 131), (Left, "ff02::2", 132)] {
            let (found, first, message) = written("ff0e::5", source, kind, true);
            assert_eq!((found, first, message.len()), (ip(to), kind_byte, 24));
            assert_eq!(message[8..], group.octets());
        }
    }
}

/// What is read of an IGMP message with this hop limit.
fn igmp_read(message: &[u8], hop_limit: u8) -> Option<GroupMessage> {
    let report = Report { group: ip("239.1.2.3"), kind: Kind::Joined, is_v1: false };
    let mut out = vec![0; 46];
    write(&mut out, report, LINK, ip("10.0.0.9")).unwrap();
    out.truncate(38);
    out.extend_from_slice(message);
    let mut packet = Ipv4Packet::new_unchecked(&mut out[14..]);
    packet.set_total_len(24 + u16::try_from(message.len()).unwrap());
    packet.set_hop_limit(hop_limit);
    packet.fill_checksum();
    let Ok(Frame::Ip(headers)) = parse(&out) else { panic!("{out:?}") };
    read(&out, &headers)
}

fn igmp_message(message: &IgmpRepr) -> [u8; 8] {
    let mut bytes = [0; 8];
    message.emit(&mut IgmpPacket::new_unchecked(&mut bytes[..]));
    bytes
}

#[test]
fn messages_of_igmp_are_read() {
    let group_addr = Ipv4Addr::new(239, 1, 2, 3);
    let version = IgmpVersion::Version2;
    let max_resp_time = smoltcp::time::Duration::from_millis(2_500);
    let asks = |group_addr| {
        igmp_message(&IgmpRepr::MembershipQuery { max_resp_time, group_addr, version })
    };
    let any = asks(Ipv4Addr::UNSPECIFIED);
    assert_eq!(igmp_read(&any, 1), Some(query("0.0.0.0", None, 2_500, false)));
    let one = asks(group_addr);
    let expected = query("239.1.2.3", Some("239.1.2.3"), 2_500, false);
    assert_eq!(igmp_read(&one, 1), Some(expected));
    let report = igmp_message(&IgmpRepr::MembershipReport { group_addr, version });
    assert_eq!(igmp_read(&report, 1), Some(Reported { group: group_addr.into() }));
    let leave = igmp_message(&IgmpRepr::LeaveGroup { group_addr });
    assert_eq!(igmp_read(&leave, 1), None);
    // From another link, damaged, cut off.
    assert_eq!(igmp_read(&any, 2), None);
    assert_eq!(igmp_read(&[any[0], any[1], any[2], any[3] ^ 1, 0, 0, 0, 0], 1), None);
    assert_eq!(igmp_read(&any[..7], 1), None);
    // Version 1 names no time. A query of version 3 is longer.
    let mut old = any;
    old[1] = 0;
    IgmpPacket::new_unchecked(&mut old[..]).fill_checksum();
    assert_eq!(igmp_read(&old, 1), Some(query("0.0.0.0", None, 10_000, true)));
    let mut new = [0; 12];
    (new[0], new[1], new[8]) = (0x11, 0x8a, 2);
    IgmpPacket::new_unchecked(&mut new[..]).fill_checksum();
    // 10 | 16, shifted by 3: 208 tenths of a second.
    assert_eq!(igmp_read(&new, 1), Some(query("0.0.0.0", None, 20_800, false)));
}

/// What is read of an MLD message. `change` sees the frame before its checksum is made.
fn mld_read(message: &[u8], change: impl Fn(&mut [u8])) -> Option<GroupMessage> {
    let report = Report { group: ip("ff0e::5"), kind: Kind::Joined, is_v1: true };
    let mut out = vec![0; 86];
    write(&mut out, report, LINK, ip("fe80::9")).unwrap();
    out.truncate(62);
    out.extend_from_slice(message);
    out[18..20].copy_from_slice(&(8 + u16::try_from(message.len()).unwrap()).to_be_bytes());
    change(&mut out);
    let Ok(Frame::Ip(headers)) = parse(&out) else { panic!("{out:?}") };
    assert_eq!(headers.destination.protocol, ICMPV6);
    let (source, to) = (headers.source, headers.destination.address);
    Icmpv6Packet::new_unchecked(&mut out[62..]).fill_checksum(&source, &to);
    assert_eq!(check(&out, &headers), Ok(()));
    read(&out, &headers)
}

#[test]
fn messages_of_mld_are_read() {
    let message = |kind: u8, code: u16, group: &str, bytes| {
        let mut message = vec![0; bytes];
        message[0] = kind;
        message[4..6].copy_from_slice(&code.to_be_bytes());
        message[8..24].copy_from_slice(&group.parse::<Ipv6Addr>().unwrap().octets());
        message
    };
    let any = |bytes| message(130, 2_500, "::", bytes);
    let read = |message: &[u8]| mld_read(message, |_| {});
    for bytes in [24, 28, 60] {
        assert_eq!(read(&any(bytes)), Some(query("::", None, 2_500, bytes == 24)));
    }
    for bytes in [23, 25, 27] {
        let mut short = any(28);
        short.truncate(bytes);
        assert_eq!(read(&short), None);
    }
    let one = query("ff0e::5", Some("ff0e::5"), 2_500, false);
    assert_eq!(read(&message(130, 2_500, "ff0e::5", 28)), Some(one));
    assert_eq!(read(&message(130, 2_500, "fe80::5", 28)), None);
    // (0x123 | 0x1000) << (2 + 3)
    let long = query("::", None, 0x1123 << 5, false);
    assert_eq!(read(&message(130, 0xa123, "::", 28)), Some(long));
    let report = Some(Reported { group: ip("ff0e::5") });
    assert_eq!(read(&message(131, 0, "ff0e::5", 24)), report);
    assert_eq!(read(&message(131, 0, "fe80::5", 24)), None);
    assert_eq!(read(&message(132, 0, "ff0e::5", 24)), None);
    // From another link: hop limit, source, no router alert, no options.
    assert_eq!(mld_read(&any(28), |frame| frame[21] = 2), None);
    assert_eq!(mld_read(&any(28), |frame| frame[22] = 0x20), None);
    assert_eq!(mld_read(&any(28), |frame| frame[56] = 1), None);
    assert_eq!(mld_read(&any(28), |frame| frame[20] = 60), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The table keeps its order and its memory, and each report has a form.
    #[test]
    fn any_calls_keep_the_bounds(
        steps in prop::collection::vec((0u8..8, 0u16..100, any::<bool>(), 0u64..20_000), 1..600),
    ) {
        let mut all = Memberships::new(7);
        let mut now = ms(0);
        for (step, number, is_v4, delay) in steps {
            let group: IpAddr = match is_v4 {
                true => Ipv4Addr::from(0xef00_0000 + u32::from(number)).into(),
                false => Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, number).into(),
            };
            match step {
                0..=2 => { let _full = all.join(group, now); }
                3 => { let _not_joined = all.leave(group, now); }
                4 => all.learn(Reported { group }, now),
                5 => {
                    let (group, is_v1) = ((number > 50).then_some(group), number % 9 == 0);
                    let answer_max = Span::from_millis(delay);
                    all.learn(Query { family_of: group_of(is_v4), group, answer_max, is_v1 }, now);
                }
                _ => now += Span::from_millis(delay),
            }
            let is_early = all.wake() > now;
            let mut sent = 0;
            while let Some(report) = all.next_report(now) {
                let source = if report.group.is_ipv4() { ip("10.0.0.1") } else { ip("::") };
                prop_assert!(write(&mut [0; 100], report, LINK, source).is_ok());
                sent += 1;
            }
            prop_assert!(!is_early || sent == 0);
            prop_assert!(all.wake() > now);
            prop_assert!(all.groups.is_sorted_by(|a, b| a.group < b.group));
            prop_assert_eq!(all.groups.capacity(), GROUPS_MAX);
        }
    }
}

fn group_of(is_v4: bool) -> IpAddr {
    if is_v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}
