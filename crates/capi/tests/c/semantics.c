/* The promises of the calls, seen from C: Table 1, codes, counts. Asserts on counts and
 * orders only. Prints the first assertion that fails and exits with 1. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <upcall.h>
#include "expect.h"

#define MILLISECOND INT64_C(1000000)

static struct rts_attr every(uint64_t period_ms, uint32_t batch, uint32_t quantum)
{
    struct rts_attr attr = RTS_ATTR_INIT;
    attr.period_ns = period_ms * 1000000;
    attr.cost_ns = 10000;
    attr.batch = batch;
    attr.quantum = quantum;
    return attr;
}

static int sleep_for(int descriptor, int64_t timeout_ns)
{
    struct rts_mask mask = RTS_MASK_INIT;
    rts_mask_add(&mask, descriptor);
    int found = rts_sleep(&mask, &mask, timeout_ns);
    EXPECT(found < 0 || rts_mask_has(&mask, descriptor) == found);
    return found;
}

static struct rts_stats statistics_of(int descriptor)
{
    struct rts_stats seen = RTS_STATS_INIT;
    EXPECT(rts_statistics(descriptor, &seen) == 0);
    EXPECT(seen.size == sizeof seen);
    return seen;
}

/* Closes a handler; repeats the call if a busy machine delayed the handler. */
static void close_it(int descriptor)
{
    int code;
    while ((code = rts_close(descriptor)) == -ETIMEDOUT)
        ;
    EXPECT(code == 0);
}

static void all_of_it(struct rts_funargs *args)
{
    while (rts_proceed(args->smstr))
        ;
}

/* Address space of this process that is locked, in KiB. */
static unsigned long locked_kib(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[128];
    unsigned long kib = 0;
    EXPECT(status != NULL);
    while (fgets(line, sizeof line, status) != NULL && sscanf(line, "VmLck: %lu", &kib) != 1)
        ;
    fclose(status);
    return kib;
}

/* 0. The setting for locked memory. First, because memory stays locked. */
static void memory(void)
{
    struct rts_config config = RTS_CONFIG_INIT;
    config.memory_lock = "off";
    EXPECT(rts_init(&config) == 0 && locked_kib() == 0 && rts_exit() == 0);
    config.memory_lock = "all";
    EXPECT(rts_init(&config) == 0 && (locked_kib() > 0 || rts_notice(0) != NULL));
    EXPECT(rts_exit() == 0);
}

/* 1. Wrong arguments are refused and do no harm. */
static void bad_arguments(void)
{
    struct rts_attr attr = every(10, 1, 1), bad;
    struct rts_mask mask = RTS_MASK_INIT;
    struct rts_stats statistics = RTS_STATS_INIT;

    int unknown[] = {-1, 0, 5, RTS_DESCRIPTORS_MAX, 0x7fffffff};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        EXPECT(rts_run(unknown[i]) == -EBADF && rts_suspend(unknown[i]) == -EBADF);
        EXPECT(rts_close(unknown[i]) == -EBADF && rts_cpu(unknown[i]) == -EBADF);
        bad = attr, bad.flags = RTS_SAME_CPU, bad.same_cpu_as = unknown[i];
        EXPECT(rts_create(&bad, all_of_it, NULL, NULL) == -EBADF);
        EXPECT(rts_statistics(unknown[i], &statistics) == -EBADF);
    }
    EXPECT(rts_create(NULL, all_of_it, NULL, NULL) == -EFAULT);
    EXPECT(rts_create(&attr, NULL, NULL, NULL) == -EFAULT);
    EXPECT(rts_sleep(NULL, NULL, 0) == -EFAULT && rts_statistics(0, NULL) == -EFAULT);
    EXPECT(rts_sleep(&mask, NULL, -1) == 0);
    rts_mask_add(&mask, 3);
    EXPECT(rts_sleep(&mask, NULL, -1) == -EBADF);
    rts_mask_add(&mask, -1);
    rts_mask_add(&mask, RTS_DESCRIPTORS_MAX);
    EXPECT(!rts_mask_has(&mask, -1) && !rts_mask_has(&mask, RTS_DESCRIPTORS_MAX));

    bad = attr, bad.size = 0;
    EXPECT(rts_create(&bad, all_of_it, NULL, NULL) == -EINVAL);
    bad = attr, bad.flags = 8;
    EXPECT(rts_create(&bad, all_of_it, NULL, NULL) == -EINVAL);
    bad = attr, bad.period_ns = 0;
    EXPECT(rts_create(&bad, all_of_it, NULL, NULL) == -EINVAL);
    bad = attr, bad.quantum = 2;
    EXPECT(rts_create(&bad, all_of_it, NULL, NULL) == -EINVAL);
    EXPECT(strstr(rts_refusal(), "the quantum is 2") != NULL && *rts_hint() == 0);
    bad = attr, bad.name = "\xff";
    EXPECT(rts_create(&bad, all_of_it, NULL, NULL) == -EINVAL);
    struct {
        struct rts_attr known;
        uint64_t more;
    } newer = {attr, 1};
    newer.known.size = sizeof newer;
    EXPECT(rts_create(&newer.known, all_of_it, NULL, NULL) == -E2BIG);

    struct rts_shared nobodys;
    memset(&nobodys, 0, sizeof nobodys);
    EXPECT(!rts_proceed(&nobodys) && !rts_boundary(NULL));
    EXPECT(strcmp(rts_strerror(0), "success") == 0 && *rts_strerror(-EBUSY) != 0);
}

/* 2. Created, run, suspended, run again, closed (Table 1). */
static void life_cycle(void)
{
    struct rts_attr attr = every(2, 4, 2);
    volatile struct rts_shared *shared = NULL;
    int descriptor = rts_create(&attr, all_of_it, NULL, &shared);
    EXPECT(descriptor == 0 && shared != NULL && shared->descriptor == 0);
    EXPECT(shared->size == sizeof *shared);
    EXPECT(sleep_for(descriptor, -1) == 1); /* a new handler is suspended */
    EXPECT(statistics_of(descriptor).upcalls == 0);

    for (int round = 0; round < 3; round++) {
        uint64_t before = statistics_of(descriptor).upcalls;
        EXPECT(rts_run(descriptor) == 0 && rts_run(descriptor) == 0);
        EXPECT(statistics_of(descriptor).active == 1);
        EXPECT(sleep_for(descriptor, 10 * MILLISECOND) == 0); /* does not end by itself */
        while (statistics_of(descriptor).upcalls < before + 3)
            ;
        while (statistics_of(descriptor).wakeup_ns_max == 0) /* some wake-up is measured */
            ;
        EXPECT(rts_suspend(descriptor) == 0);
        EXPECT(sleep_for(descriptor, -1) == 1);
        struct rts_stats first = statistics_of(descriptor), second;
        EXPECT(first.active == 0 && first.pdus <= 4 * first.upcalls && first.count_errors == 0);
        EXPECT(sleep_for(descriptor, 0) == 1);
        second = statistics_of(descriptor);
        EXPECT(first.upcalls == second.upcalls && first.jobs == second.jobs);
    }
    int other = rts_creat(&attr, all_of_it, NULL, NULL);
    EXPECT(other == 1);
    EXPECT(rts_run(descriptor) == 0);
    close_it(descriptor); /* also while active */
    EXPECT(rts_close(descriptor) == -EBADF && sleep_for(descriptor, 0) == -EBADF);
    EXPECT(rts_create(&attr, all_of_it, NULL, NULL) == descriptor); /* the lowest free descriptor */
    close_it(descriptor);
    close_it(other);
}

/* 3. The calls that a handler may make, and the PDUs that it is granted. */
struct inside {
    int other;
    int codes[5];
    int suspended;
    uint32_t pdu_max, granted_first, granted_second;
    unsigned begun_after;
};

static void looks_around(struct rts_funargs *args)
{
    struct inside *inside = args->pcb;
    struct rts_mask mask = RTS_MASK_INIT;
    struct rts_attr attr = every(10, 1, 1);
    volatile struct rts_shared *shared = args->smstr;
    inside->pdu_max = shared->pdu_max;
    inside->codes[0] = rts_run(inside->other);
    inside->codes[1] = rts_suspend(inside->other);
    inside->codes[2] = rts_sleep(&mask, NULL, -1);
    inside->codes[3] = rts_create(&attr, all_of_it, NULL, NULL);
    inside->codes[4] = rts_exit();
    rts_proceed(shared);
    inside->granted_first = shared->pdu_granted;
    for (int i = 0; i < 3; i++) /* the second PDU of this quantum, and the first of the next */
        if (i < 2)
            rts_proceed(shared);
    inside->granted_second = shared->pdu_granted;
    inside->suspended = rts_suspend(args->descriptor);
    while (rts_proceed(shared))
        inside->begun_after++;
}

static void inside_a_handler(void)
{
    struct inside inside = {0};
    struct rts_attr attr = every(10, 7, 2);
    inside.other = rts_create(&attr, all_of_it, NULL, NULL);
    int descriptor = rts_create(&attr, looks_around, &inside, NULL);
    EXPECT(inside.other >= 0 && descriptor >= 0);
    EXPECT(rts_run(descriptor) == 0 && sleep_for(descriptor, -1) == 1);
    for (int i = 0; i < 5; i++)
        EXPECT(inside.codes[i] == -EDEADLK);
    EXPECT(inside.pdu_max == 7 && inside.granted_first == 2 && inside.granted_second == 4);
    EXPECT(inside.suspended == 0 && inside.begun_after == 0);
    struct rts_stats seen = statistics_of(descriptor);
    EXPECT(seen.upcalls == 1 && seen.pdus == 3 && seen.jobs == 1 && seen.count_errors == 0);
    close_it(descriptor);
    close_it(inside.other);
}

/* A long job yields to a shorter period, and learns that it is resumed. */
struct yields {
    unsigned upcalls;
    uint32_t yielded, resumed;
};

static void long_job(struct rts_funargs *args)
{
    struct yields *of = args->pcb;
    if (++of->upcalls == 2) {
        of->resumed = args->smstr->resumed;
        rts_finish(args->smstr);
        return;
    }
    while (rts_proceed(args->smstr))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    of->yielded = args->smstr->yield_request;
}

static void yields_and_is_resumed(void)
{
    struct yields of = {0, 0, 0};
    struct rts_attr attr = every(3600000, 1000000, 1), short_attr = every(5, 1, 1);
    attr.cost_ns = 1000000;
    int descriptor = rts_create(&attr, long_job, &of, NULL);
    int other = rts_create(&short_attr, all_of_it, NULL, NULL);
    EXPECT(descriptor >= 0 && other >= 0);
    EXPECT(rts_run(other) == 0 && rts_run(descriptor) == 0 && sleep_for(descriptor, -1) == 1);
    EXPECT(of.upcalls == 2 && of.yielded == 1 && of.resumed == 1);
    close_it(descriptor);
    close_it(other);
}

/* 4. An impossible count is corrected and counted. Each upcall may process 6 PDUs, is
 * granted 2 and begins 1. */
static void miscounts(struct rts_funargs *args)
{
    unsigned *upcalls = args->pcb;
    rts_proceed(args->smstr);
    switch ((*upcalls)++) {
    case 0: /* far too many, then asks for more: the quantum is used up, 6 in all */
        args->smstr->pdu_count = 4000000000u;
        all_of_it(args);
        break;
    case 1: /* too few, then asks for more: the same */
        args->smstr->pdu_count = 0;
        args->smstr->pdu_granted = 0;
        all_of_it(args);
        break;
    case 2: /* far too many, then returns: the 2 granted PDUs count */
        args->smstr->pdu_count = 4000000000u;
        break;
    default: /* none, then returns: the handler may have put its PDU back */
        args->smstr->pdu_count = 0;
        rts_finish(args->smstr);
    }
}

static void wrong_counts(void)
{
    unsigned upcalls = 0;
    struct rts_attr attr = every(5, 6, 2);
    int descriptor = rts_create(&attr, miscounts, &upcalls, NULL);
    EXPECT(descriptor >= 0 && rts_run(descriptor) == 0 && sleep_for(descriptor, -1) == 1);
    struct rts_stats seen = statistics_of(descriptor);
    EXPECT(upcalls == 4 && seen.upcalls == 4 && seen.jobs == 4);
    EXPECT(seen.count_errors == 3 && seen.pdus == 6 + 6 + 2 + 0);
    close_it(descriptor);
}

/* 5. Refusals with their reasons, and costs measured in a trial. */
static void runs_out(struct rts_funargs *args)
{
    unsigned *left = args->pcb;
    while (*left > 0 && rts_proceed(args->smstr)) {
        struct timespec now, end;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        do
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        while ((now.tv_sec - end.tv_sec) * 1000000000 + now.tv_nsec - end.tv_nsec < 20000);
        --*left;
    }
    if (*left == 0)
        rts_finish(args->smstr);
}

static void admission(void)
{
    struct rts_attr attr = every(10, 1, 1);
    attr.cost_ns = 9900000;
    attr.name = "greedy";
    EXPECT(rts_create(&attr, all_of_it, NULL, NULL) == -EBUSY);
    EXPECT(strstr(rts_refusal(), "`greedy` is refused") != NULL && *rts_hint() != 0);
    attr.cost_ns = 1000;
    int descriptor = rts_create(&attr, all_of_it, NULL, NULL);
    EXPECT(descriptor == 0 && rts_create(&attr, all_of_it, NULL, NULL) == -EEXIST);
    EXPECT(*rts_hint() == 0);
    close_it(descriptor);

    unsigned left = 0;
    attr = every(1000, 4, 4);
    attr.cost_ns = 0;
    EXPECT(rts_create(&attr, runs_out, &left, NULL) == -ENODATA);
    left = 10;
    descriptor = rts_create(&attr, runs_out, &left, NULL);
    EXPECT(descriptor == 0 && left == 0); /* the trial consumed the PDUs */
    EXPECT(statistics_of(descriptor).upcalls == 0);
    close_it(descriptor);
}

/* 6. A sleeping thread blocks no other call, and notices the effects of other calls. */
static void *sleeper(void *descriptor)
{
    return (void *)(intptr_t)sleep_for(*(int *)descriptor, -1);
}

static void other_threads(void)
{
    enum { SUSPEND, CLOSE, EXIT, WAYS };
    for (int way = 0; way < WAYS; way++) {
        struct rts_attr attr = every(5, 1, 1);
        int descriptor = rts_create(&attr, all_of_it, NULL, NULL);
        pthread_t thread;
        void *found;
        EXPECT(descriptor == 0 && rts_run(descriptor) == 0);
        EXPECT(pthread_create(&thread, NULL, sleeper, &descriptor) == 0);
        while (statistics_of(descriptor).upcalls < 5)
            ;
        if (way == SUSPEND)
            EXPECT(rts_suspend(descriptor) == 0);
        if (way == CLOSE)
            close_it(descriptor);
        if (way == EXIT)
            EXPECT(rts_exit() == 0);
        EXPECT(pthread_join(thread, &found) == 0);
        /* The thread may come too late to sleep. Then the descriptor is closed already. */
        EXPECT((intptr_t)found == 1 || (way != SUSPEND && (intptr_t)found == -EBADF));
        if (way == SUSPEND)
            close_it(descriptor);
    }
}

/* 7. Explicit set-up, end, and second set-up; refused in a forked child. */
static void set_up(void)
{
    struct rts_config config = RTS_CONFIG_INIT;
    uint32_t no_cpu = 100000;
    config.policy = "fair";
    EXPECT(rts_init(&config) == -EINVAL && strstr(rts_refusal(), "dwcs") != NULL);
    config.policy = "dws";
    config.memory_lock = "some";
    EXPECT(rts_init(&config) == -EINVAL && strstr(rts_refusal(), "on-fault") != NULL);
    config.memory_lock = "on-fault";
    config.cpu_count = 1;
    EXPECT(rts_init(&config) == -EFAULT);
    config.cpus = &no_cpu;
    EXPECT(rts_init(&config) == -EINVAL);
    config.cpu_count = 0;
    EXPECT(rts_init(&config) == 0 && rts_init(NULL) == -EALREADY);
    unsigned left = 10;
    struct rts_attr attr = every(2, 4, 1);
    int descriptor = rts_create(&attr, runs_out, &left, NULL);
    EXPECT(descriptor == 0 && rts_run(descriptor) == 0 && sleep_for(descriptor, -1) == 1);
    EXPECT(left == 0 && statistics_of(descriptor).pdus == 10);

    pid_t child = fork();
    if (child == 0)
        _exit(rts_run(descriptor) == -ESRCH && rts_init(NULL) == -ESRCH ? 0 : 1);
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(rts_exit() == 0 && rts_exit() == 0 && rts_run(descriptor) == -EBADF);
}

/* 8. A handler that does not return is named, and the wait for it is bounded. The handler
 * sleeps instead of spinning, because the test needs the CPU on a machine with one CPU. */
static atomic_int released;

static void stays(struct rts_funargs *args)
{
    (void)args;
    while (!atomic_load(&released))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void stuck(void)
{
    struct rts_attr attr = every(10, 1, 1);
    int descriptor = rts_create(&attr, stays, NULL, NULL);
    EXPECT(descriptor == 0 && rts_run(descriptor) == 0);
    while (statistics_of(descriptor).upcalls == 0)
        ;
    EXPECT(rts_close(descriptor) == -ETIMEDOUT);
    EXPECT(statistics_of(descriptor).upcalls == 1); /* still open */
    EXPECT(rts_run(1) == -EBADF);                   /* and other calls are not blocked */
    atomic_store(&released, 1);
    close_it(descriptor);

    atomic_store(&released, 0);
    descriptor = rts_create(&attr, stays, NULL, NULL);
    EXPECT(descriptor == 0 && rts_run(descriptor) == 0);
    while (statistics_of(descriptor).upcalls == 0)
        ;
    EXPECT(rts_exit() == -ETIMEDOUT && rts_close(descriptor) == -EBADF);
    atomic_store(&released, 1);
}

int main(void)
{
    memory();
    bad_arguments();
    life_cycle();
    inside_a_handler();
    yields_and_is_resumed();
    wrong_counts();
    admission();
    other_threads();
    set_up();
    stuck();
    puts("all of it holds");
    return 0;
}
