/* Two periodic handlers in C: an audio stream of small batches and a video stream
 * whose handler may be interrupted after every second PDU. Both end by themselves
 * when all their PDUs are processed.
 *
 *     cargo build --release -p upcall-capi && crates/capi/install.sh "$HOME/.local"
 *     export PKG_CONFIG_PATH="$HOME/.local/lib/pkgconfig" LD_LIBRARY_PATH="$HOME/.local/lib"
 *     cc crates/capi/examples/periodic.c -o periodic $(pkg-config --cflags --libs upcall)
 *     ./periodic
 *
 * If UPCALL_SOCKET names the socket of an upcalld, the program runs as a domain of it.
 */
#include <stdio.h>
#include <upcall.h>

#define MILLISECOND UINT64_C(1000000)

/* Protocol control block: the state of a handler's stream. The scheduling thread uses it
 * while the handler is active, and main uses it before and after that. */
struct pcb {
    const char *name;
    unsigned left; /* PDUs not processed yet */
    unsigned long checksum;
};

static void process_one_pdu(struct pcb *pcb)
{
    for (unsigned i = 0; i < 1000; i++)
        pcb->checksum = pcb->checksum * 31 + i;
    pcb->left--;
}

static void handler(struct rts_funargs *args)
{
    struct pcb *pcb = args->pcb;
    while (pcb->left > 0 && rts_proceed(args->smstr))
        process_one_pdu(pcb);
    if (pcb->left == 0)
        rts_finish(args->smstr);
}

static int fail(const char *call, int code)
{
    const char *hint = rts_hint();
    fprintf(stderr, "%s: %s: %s%s%s\n", call, rts_strerror(code), rts_refusal(), *hint ? "; " : "",
            hint);
    return 1;
}

int main(void)
{
    struct pcb audio = {"audio", 40, 1}, video = {"video", 100, 1};
    struct pcb *pcbs[] = {&audio, &video};
    struct rts_attr attrs[] = {RTS_ATTR_INIT, RTS_ATTR_INIT};
    struct rts_mask active = RTS_MASK_INIT;
    volatile struct rts_shared *shared;
    int descriptors[2], code;

    attrs[0].name = audio.name;
    attrs[0].period_ns = 5 * MILLISECOND;
    attrs[0].cost_ns = 50000; /* 50 us of CPU time per PDU */
    attrs[0].batch = 2;
    attrs[1].name = video.name;
    attrs[1].period_ns = 20 * MILLISECOND;
    attrs[1].cost_ns = 50000;
    attrs[1].batch = 10;
    attrs[1].quantum = 2;

    for (uint32_t i = 0; rts_notice(i) != NULL; i++)
        fprintf(stderr, "%s\n", rts_notice(i)); /* a missing right */
    for (int i = 0; i < 2; i++) {
        descriptors[i] = rts_create(&attrs[i], handler, pcbs[i], &shared);
        if (descriptors[i] < 0)
            return fail("rts_create", descriptors[i]);
        rts_mask_add(&active, descriptors[i]);
    }
    for (int i = 0; i < 2; i++)
        if ((code = rts_run(descriptors[i])) < 0)
            return fail("rts_run", code);

    /* Removes each handler that ended from the mask, until none is active. */
    for (;;) {
        struct rts_mask inactive = RTS_MASK_INIT;
        code = rts_sleep(&active, &inactive, -1);
        if (code < 0)
            return fail("rts_sleep", code);
        if (code == 0)
            break;
        for (int i = 0; i < 2; i++)
            if (rts_mask_has(&inactive, descriptors[i]))
                rts_mask_remove(&active, descriptors[i]);
    }

    for (int i = 0; i < 2; i++) {
        struct rts_stats seen = RTS_STATS_INIT;
        if ((code = rts_statistics(descriptors[i], &seen)) < 0)
            return fail("rts_statistics", code);
        printf("%s: upcalls %llu, PDUs %llu, jobs %llu, misses %llu, worst response %.3f ms\n",
               pcbs[i]->name, (unsigned long long)seen.upcalls, (unsigned long long)seen.pdus,
               (unsigned long long)seen.jobs, (unsigned long long)seen.misses,
               (double)seen.response_ns_max / 1e6);
        if ((code = rts_close(descriptors[i])) < 0)
            return fail("rts_close", code);
    }
    if ((code = rts_exit()) < 0)
        return fail("rts_exit", code);
    return 0;
}
