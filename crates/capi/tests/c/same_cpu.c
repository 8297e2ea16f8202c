/* Two handlers on one CPU of two share a counter without a lock, and a program learns the CPU of
 * its handlers. Asserts on counts, codes and CPUs only. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "expect.h"

#define MILLISECOND UINT64_C(1000000)

/* Sets the library up on two CPUs, if this process may use two. */
static int set_up(void)
{
    struct rts_config config = RTS_CONFIG_INIT;
    cpu_set_t allowed;
    uint32_t cpus[2], found = 0;
    EXPECT(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            cpus[found++] = cpu;
    config.cpu_count = found;
    config.cpus = cpus;
    EXPECT(rts_init(&config) == 0);
    return found == 2;
}

static struct rts_attr every(uint64_t period_ns, uint32_t batch, uint64_t cost_ns)
{
    struct rts_attr attr = RTS_ATTR_INIT;
    attr.period_ns = period_ns;
    attr.batch = batch;
    attr.cost_ns = cost_ns;
    return attr;
}

static void nothing(struct rts_funargs *args)
{
    (void)args;
}

/* Neither a lock nor an atomic: volatile only keeps the read and the write apart. */
static volatile uint64_t counter;

/* What a handler has to do, and what it found. */
struct counting {
    uint64_t left; /* PDUs; the handler ends with the last */
    uint64_t done;
    int cpu;  /* where it ran; -2 if on several */
    int code; /* of rts_cpu inside of it */
};

static void counts(struct rts_funargs *args)
{
    struct counting *of = args->pcb;
    int cpu = sched_getcpu();
    of->cpu = of->cpu == -1 || of->cpu == cpu ? cpu : -2;
    of->code = rts_cpu(args->descriptor);
    while (of->left > 0 && rts_proceed(args->smstr)) {
        uint64_t seen = counter;
        for (volatile int step = 0; step < 2000; step++)
            ;
        counter = seen + 1;
        of->left--;
        of->done++;
    }
    if (of->left == 0)
        rts_finish(args->smstr);
}

int main(void)
{
    struct counting often = {10000000, 0, -1, 0}, lasting = {20000, 0, -1, 0};
    struct rts_mask waited = RTS_MASK_INIT;
    int big, first, second, other;
    if (!set_up()) {
        puts("one CPU");
        return 0;
    }
    /* It leaves less room on the first CPU than `lasting` needs. */
    struct rts_attr attr = every(10 * MILLISECOND, 600, 10000);
    big = rts_create(&attr, nothing, NULL, NULL);
    attr = every(10 * MILLISECOND, 400, 10000);
    attr.quantum = 3;
    first = rts_create(&attr, counts, &lasting, NULL);
    attr = every(MILLISECOND, 1, 10000);
    other = rts_create(&attr, nothing, NULL, NULL);
    attr.flags = RTS_SAME_CPU;
    attr.same_cpu_as = first;
    second = rts_create(&attr, counts, &often, NULL);
    EXPECT(big >= 0 && first >= 0 && other >= 0 && second >= 0);
    EXPECT(rts_cpu(big) == rts_cpu(other) && rts_cpu(first) == rts_cpu(second));
    EXPECT(rts_cpu(first) >= 0 && rts_cpu(first) != rts_cpu(big));

    /* More than is left there, and not more than a CPU. */
    attr.name = "large";
    attr.period_ns = 10 * MILLISECOND;
    attr.cost_ns = 6 * MILLISECOND;
    EXPECT(rts_create(&attr, nothing, NULL, NULL) == -EBUSY);
    EXPECT(strstr(rts_refusal(), "the CPU of `rts1`") != NULL && *rts_hint() != 0);

    EXPECT(rts_run(second) == 0 && rts_run(first) == 0);
    rts_mask_add(&waited, first);
    EXPECT(rts_sleep(&waited, NULL, -1) == 1);
    while (rts_close(second) == -ETIMEDOUT)
        ;
    EXPECT(rts_cpu(second) == -EBADF);
    EXPECT(often.cpu == rts_cpu(first) && lasting.cpu == often.cpu);
    EXPECT(often.code == -EDEADLK && lasting.code == -EDEADLK);
    EXPECT(lasting.done == 20000 && often.done > 0);
    EXPECT(counter == lasting.done + often.done);
    EXPECT(rts_exit() == 0);
    puts("nothing is lost");
    return 0;
}
