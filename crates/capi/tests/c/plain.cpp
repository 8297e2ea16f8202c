// The API from C++17: every name of the header, and one handler that runs to its end.
#include <atomic>
#include <cstdio>
#include <upcall.h>

namespace {
struct Pcb {
    std::atomic<unsigned> processed{0};
};

void handler(rts_funargs *args)
{
    auto *pcb = static_cast<Pcb *>(args->pcb);
    while (pcb->processed < 25 && rts_proceed(args->smstr))
        ++pcb->processed;
    if (pcb->processed == 25)
        rts_finish(args->smstr);
}
} // namespace

int main()
{
    rts_config config = RTS_CONFIG_INIT;
    if (rts_init(&config) != 0)
        return 1;
    Pcb pcb;
    rts_attr attr = RTS_ATTR_INIT;
    attr.period_ns = 2000000;
    attr.cost_ns = 10000;
    attr.batch = 10;
    volatile rts_shared *shared = nullptr;
    int descriptor = rts_creat(&attr, handler, &pcb, &shared);
    rts_mask waited = RTS_MASK_INIT;
    rts_mask_add(&waited, descriptor);
    if (descriptor < 0 || rts_run(descriptor) != 0 || rts_sleep(&waited, nullptr, -1) != 1)
        return 1;
    rts_stats seen = RTS_STATS_INIT;
    if (rts_statistics(descriptor, &seen) != 0)
        return 1;
    std::printf("PDUs %u %llu, jobs %llu\n", pcb.processed.load(),
                static_cast<unsigned long long>(seen.pdus),
                static_cast<unsigned long long>(seen.jobs));
    if (rts_suspend(descriptor) != 0 || rts_close(descriptor) != 0 || rts_exit() != 0)
        return 1;
    rts_mask_remove(&waited, descriptor);
    return rts_mask_has(&waited, descriptor);
}
