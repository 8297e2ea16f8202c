/* The terms of single policies in struct rts_attr: each changes what is admitted or what is
 * called. Periods of an hour make counts independent of the clock. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include "expect.h"

#define HOUR UINT64_C(3600000000000)
#define MILLISECOND UINT64_C(1000000)

/* Sets the library up on the last CPU that this process may use. */
static void set_up(const char *policy)
{
    struct rts_config config = RTS_CONFIG_INIT;
    cpu_set_t allowed;
    uint32_t cpu = CPU_SETSIZE - 1;
    EXPECT(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    while (!CPU_ISSET(cpu, &allowed))
        cpu--;
    config.cpu_count = 1;
    config.cpus = &cpu;
    config.policy = policy;
    EXPECT(rts_init(&config) == 0);
}

static struct rts_attr every(uint64_t period_ns, uint64_t cost_ns)
{
    struct rts_attr attr = RTS_ATTR_INIT;
    attr.period_ns = period_ns;
    attr.cost_ns = cost_ns;
    return attr;
}

static void nothing(struct rts_funargs *args)
{
    (void)args;
}

static int create(const struct rts_attr *attr)
{
    return rts_create(attr, nothing, NULL, NULL);
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static struct rts_stats statistics_of(int descriptor)
{
    struct rts_stats seen = RTS_STATS_INIT;
    EXPECT(rts_statistics(descriptor, &seen) == 0);
    return seen;
}

/* Jobs of a handler of one job an hour, after those that could begin had a tenth of a second. */
static uint64_t jobs_of(const struct rts_attr *attr, rts_handler_fn handler, uint64_t expected)
{
    int descriptor = rts_create(attr, handler, NULL, NULL);
    EXPECT(descriptor >= 0 && rts_run(descriptor) == 0);
    while (statistics_of(descriptor).jobs < expected)
        sleep_ms(1);
    sleep_ms(100);
    uint64_t jobs = statistics_of(descriptor).jobs;
    EXPECT(rts_close(descriptor) == 0);
    return jobs;
}

/* Old programs: a struct without the terms, and members that nobody knows yet. */
static void sizes(void)
{
    set_up("rmdp");
    struct rts_attr attr = every(10 * MILLISECOND, 1000);
    attr.size = offsetof(struct rts_attr, share_ppm);
    attr.workahead = 2000000; /* beyond the size, so it is not read */
    int descriptor = create(&attr);
    EXPECT(descriptor >= 0 && rts_close(descriptor) == 0);
    attr.size = sizeof attr;
    EXPECT(create(&attr) == -EINVAL && strstr(rts_refusal(), "workahead") != NULL);
    attr.workahead = 0;
    attr.same_cpu_as = 1; /* without the flag */
    EXPECT(create(&attr) == -EINVAL && strstr(rts_refusal(), "same_cpu_as") != NULL);
    attr.same_cpu_as = 0;
    attr.window_misses = 2;
    attr.window_periods = 2;
    EXPECT(create(&attr) == -EINVAL && strstr(rts_refusal(), "2/2") != NULL);
    attr.window_periods = 0;
    attr.work_class = 3;
    EXPECT(create(&attr) == -EINVAL && strstr(rts_refusal(), "work_class") != NULL);
    attr.work_class = 0;
    attr.backlog = 4;
    EXPECT(create(&attr) == -EINVAL && strstr(rts_refusal(), "backlog") != NULL);
    EXPECT(rts_exit() == 0);
}

static void nine_wait(struct rts_funargs *args)
{
    EXPECT(rts_proceed(args->smstr));
    rts_messages_waiting(args->smstr, 9);
}

/* The next message is due in three hours, and waits. */
static void stamped(struct rts_funargs *args)
{
    static uint64_t due_ns;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (due_ns == 0)
        due_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    due_ns += 3 * HOUR;
    EXPECT(rts_proceed(args->smstr));
    rts_next_arrival(args->smstr, due_ns);
    rts_messages_waiting(args->smstr, 1);
}

static void workahead(void)
{
    set_up("dws");
    struct rts_attr attr = every(HOUR, 10000);
    EXPECT(jobs_of(&attr, nine_wait, 1) == 1);
    attr.workahead = 4;
    EXPECT(jobs_of(&attr, nine_wait, 5) == 5);
    EXPECT(jobs_of(&attr, stamped, 2) == 2);
    EXPECT(rts_exit() == 0);
}

static void delay_bound(void)
{
    set_up("dws");
    struct rts_attr attr = every(10 * MILLISECOND, 4 * MILLISECOND);
    int first = create(&attr);
    attr.delay_bound_ns = 5 * MILLISECOND;
    EXPECT(first >= 0 && create(&attr) == -EBUSY);
    EXPECT(strstr(rts_hint(), "a delay bound of ") != NULL);
    attr.delay_bound_ns = 20 * MILLISECOND;
    EXPECT(create(&attr) >= 0 && rts_exit() == 0);
}

static void work_class(void)
{
    set_up("dws");
    struct rts_attr attr = every(10 * MILLISECOND, 4 * MILLISECOND);
    EXPECT(create(&attr) >= 0 && create(&attr) >= 0 && create(&attr) == -EBUSY);
    attr.work_class = RTS_INTERACTIVE;
    EXPECT(create(&attr) == -EBUSY); /* a quantum of 4 ms blocks the others for too long */
    attr.batch = 400;
    attr.cost_ns = 10000;
    EXPECT(create(&attr) >= 0);
    attr.work_class = RTS_BACKGROUND;
    EXPECT(create(&attr) >= 0);
    attr.work_class = RTS_REAL_TIME;
    EXPECT(create(&attr) == -EBUSY && rts_exit() == 0);
}

static void windows(void)
{
    set_up("dwcs");
    struct rts_attr attr = every(10 * MILLISECOND, 4 * MILLISECOND);
    EXPECT(create(&attr) >= 0 && create(&attr) >= 0 && create(&attr) == -EBUSY);
    EXPECT(rts_exit() == 0);
    set_up("dwcs");
    attr.window_misses = 1;
    attr.window_periods = 2;
    for (int i = 0; i < 4; i++)
        EXPECT(create(&attr) >= 0);
    EXPECT(rts_exit() == 0);
}

static void once(struct rts_funargs *args)
{
    EXPECT(rts_proceed(args->smstr));
}

static void work_conserving(void)
{
    set_up("dwcs");
    struct rts_attr attr = every(HOUR, 10000);
    int plain = rts_create(&attr, once, NULL, NULL);
    attr.flags = RTS_WORK_CONSERVING;
    int again = rts_create(&attr, once, NULL, NULL);
    EXPECT(plain >= 0 && again >= 0 && rts_run(plain) == 0 && rts_run(again) == 0);
    while (statistics_of(again).upcalls < 10 || statistics_of(plain).upcalls < 1)
        sleep_ms(1);
    EXPECT(statistics_of(plain).upcalls == 1 && rts_exit() == 0);
}

/* The first of two handlers is not released for half an hour. */
static void offset(void)
{
    set_up("rmdp");
    struct rts_attr attr = every(HOUR, 10000);
    attr.offset_ns = HOUR / 2;
    int later = rts_create(&attr, once, NULL, NULL);
    attr.offset_ns = 0;
    int now = rts_create(&attr, once, NULL, NULL);
    EXPECT(later >= 0 && now >= 0 && rts_run(later) == 0 && rts_run(now) == 0);
    while (statistics_of(now).upcalls < 1)
        sleep_ms(1);
    EXPECT(statistics_of(later).upcalls == 0 && rts_exit() == 0);
}

/* Keeps the CPU until the others are released. */
static _Atomic int is_open;

static void keeps(struct rts_funargs *args)
{
    EXPECT(rts_proceed(args->smstr));
    while (!is_open)
        sleep_ms(1);
}

/* The first descriptor that was upcalled. */
static _Atomic int first = -1;

static void marks(struct rts_funargs *args)
{
    if (first < 0)
        first = args->descriptor;
    EXPECT(rts_proceed(args->smstr));
}

/* Interactive work goes before background work that was released earlier. */
static void order_of_classes(void)
{
    set_up("dws");
    struct rts_attr attr = every(HOUR, 10000);
    int gate = rts_create(&attr, keeps, NULL, NULL);
    attr.work_class = RTS_BACKGROUND;
    int background = rts_create(&attr, marks, NULL, NULL);
    attr.work_class = RTS_INTERACTIVE;
    int interactive = rts_create(&attr, marks, NULL, NULL);
    EXPECT(gate >= 0 && background >= 0 && interactive >= 0 && rts_run(gate) == 0);
    while (statistics_of(gate).upcalls < 1)
        sleep_ms(1);
    EXPECT(rts_run(background) == 0 && rts_run(interactive) == 0);
    is_open = 1;
    while (statistics_of(background).jobs < 1 || statistics_of(interactive).jobs < 1)
        sleep_ms(1);
    EXPECT(first == interactive && rts_exit() == 0);
}

/* Spins for each PDU, as long as there is one. */
static void busy(struct rts_funargs *args)
{
    while (rts_proceed(args->smstr)) {
        struct timespec from, now;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        do
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < 20000);
    }
}

static void shares_and_weights(void)
{
    set_up("ps");
    struct rts_attr attr = every(10 * MILLISECOND, 100000);
    attr.batch = 40;
    attr.share_ppm = 300000; /* less than it needs */
    EXPECT(create(&attr) == -EBUSY);
    attr.share_ppm = 600000;
    EXPECT(create(&attr) >= 0 && create(&attr) == -EBUSY); /* more than the CPU together */
    EXPECT(rts_exit() == 0);

    set_up("ps");
    attr = every(10 * MILLISECOND, 20000);
    attr.batch = 500;
    int light = rts_create(&attr, busy, NULL, NULL);
    attr.weight = 4;
    int heavy = rts_create(&attr, busy, NULL, NULL);
    EXPECT(light >= 0 && heavy >= 0 && rts_run(light) == 0 && rts_run(heavy) == 0);
    /* The first may run alone for a while, so only PDUs after the start of the second count. */
    while (statistics_of(heavy).pdus == 0)
        sleep_ms(1);
    uint64_t of_light = statistics_of(light).pdus, of_heavy = statistics_of(heavy).pdus;
    while (statistics_of(light).pdus + statistics_of(heavy).pdus < of_light + of_heavy + 10000)
        sleep_ms(1);
    of_light = statistics_of(light).pdus - of_light;
    of_heavy = statistics_of(heavy).pdus - of_heavy;
    EXPECT(of_heavy > 2 * of_light && of_light > 0);
    EXPECT(rts_exit() == 0);
}

/* Its first upcall sleeps until some time after the second release. */
struct late {
    long sleep_ms;
    int upcalls;
    uint32_t skipped; /* of the second upcall */
};

static void late(struct rts_funargs *args)
{
    struct late *of = args->pcb;
    EXPECT(rts_proceed(args->smstr));
    if (++of->upcalls == 1) {
        EXPECT(args->smstr->jobs_skipped == 0);
        sleep_ms(of->sleep_ms);
        return;
    }
    of->skipped = args->smstr->jobs_skipped;
    rts_finish(args->smstr);
}

/* Jobs that were dropped before the second upcall. */
static uint32_t skipped(const struct rts_attr *attr, long ms)
{
    struct late of = {ms, 0, 0};
    struct rts_mask waited = RTS_MASK_INIT;
    int descriptor = rts_create(attr, late, &of, NULL);
    EXPECT(descriptor >= 0 && rts_run(descriptor) == 0);
    rts_mask_add(&waited, descriptor);
    EXPECT(rts_sleep(&waited, NULL, -1) == 1);
    struct rts_stats seen = statistics_of(descriptor);
    /* The first job ends late, and dropped jobs are misses. */
    EXPECT(seen.skipped == of.skipped);
    if (of.skipped > 0)
        EXPECT(seen.jobs == 2 + of.skipped && seen.misses >= 1 + of.skipped);
    EXPECT(of.upcalls == 2 && rts_close(descriptor) == 0);
    return of.skipped;
}

static void backlog(void)
{
    set_up("rmdp");
    struct rts_attr attr = every(10 * MILLISECOND, 1000);
    EXPECT(skipped(&attr, 65) == 0);
    attr.backlog = RTS_CATCH_UP;
    EXPECT(skipped(&attr, 65) == 0);
    attr.backlog = RTS_SKIP;
    EXPECT(skipped(&attr, 65) >= 5);
    attr.backlog = RTS_LATEST;
    EXPECT(skipped(&attr, 65) >= 5);
    /* The second job is late, and no newer one is there for 0.7 s. */
    attr.period_ns = 800 * MILLISECOND;
    attr.deadline_ns = MILLISECOND;
    EXPECT(skipped(&attr, 900) == 0);
    attr.backlog = RTS_SKIP;
    EXPECT(skipped(&attr, 900) == 1);
    EXPECT(rts_exit() == 0);
}

int main(void)
{
    sizes();
    workahead();
    delay_bound();
    work_class();
    windows();
    work_conserving();
    offset();
    order_of_classes();
    shares_and_weights();
    backlog();
    puts("every term counts");
    return 0;
}
