/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Upcall: real-time upcalls from C and C++ (C11, C++17).
 *
 * The calls are those of rtu-1995 ("Real-Time Upcalls", Table 1 and sections 5.2
 * and 6). The library calls a handler once per period, in a scheduling thread of the
 * library's, and the handler processes a batch of PDUs:
 *
 *     static void handler(struct rts_funargs *args)
 *     {
 *         struct my_pcb *pcb = args->pcb;
 *         while (work_is_left(pcb) && rts_proceed(args->smstr))
 *             process_one_pdu(pcb);
 *     }
 *
 * Handlers on one CPU never interrupt one another between two calls of rts_proceed.
 * So handlers on the same CPU may share data without locks. RTS_SAME_CPU puts a handler
 * on the CPU of another one.
 *
 * Conventions. Calls return 0 or more on success and a negative errno value on
 * failure (-EINVAL). After a failure, rts_refusal() gives the reason in words. Times are
 * integer nanoseconds. Structs begin with their size: set it to sizeof, best by the
 * RTS_..._INIT macros. If library and program have different versions, the library reads
 * and writes the members that both know. Reserved members are 0.
 *
 * Any thread may call. Calls are carried out one at a time; only rts_sleep waits
 * beside other calls. Inside a handler only rts_proceed, rts_finish, rts_suspend of the
 * handler itself, rts_strerror, rts_refusal and rts_hint may be called. Other calls
 * return -EDEADLK there. After fork(2) the child has no handlers, and calls return
 * -ESRCH there.
 *
 * Signals for the process never arrive in the library's threads, except those that a
 * handler causes by its own instructions (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP,
 * SIGSYS).
 *
 * A handler must return. It must not leave by longjmp, pthread_exit or a C++
 * exception (an exception ends the process).
 */
#ifndef UPCALL_H
#define UPCALL_H

#include <stddef.h>
#include <stdint.h>

/* Version of this header and of the library that came with it. */
#define RTS_VERSION "0.1.0"

/* Descriptors are 0 to RTS_DESCRIPTORS_MAX - 1. rts_create returns the lowest free one. */
#define RTS_DESCRIPTORS_MAX 1024

#ifdef __cplusplus
extern "C" {
#endif

/* The memory that a handler and its scheduler share, from rts_create to rts_close. The
 * library writes the first half. The handler writes the second half, through the functions
 * below. Any thread may read all of it at any time. */
struct rts_shared {
    uint32_t size;          /* of this struct */
    uint32_t pdu_granted;   /* pdu_count may grow to this without asking */
    uint32_t pdu_max;       /* PDUs this upcall may process: the rest of the batch */
    uint32_t yield_request; /* not 0: the handler must return, with PDUs left to process */
    uint32_t resumed;       /* not 0: this upcall continues a job that had to yield */
    int32_t descriptor;     /* as rts_create returned it; -1 before */
    uint64_t check_at_ns;   /* CLOCK_MONOTONIC: before, nothing can outrank the handler */
    uint32_t abort;         /* not 0: the process ends; see RTS_ABORT_PHASE */
    uint32_t jobs_skipped;  /* jobs dropped between the last job and this one; see RTS_SKIP */
    uint32_t reserved0[6];

    uint32_t pdu_count; /* PDUs begun in this upcall */
    uint32_t finish;    /* not 0: no further upcalls are wanted */
    uint64_t next_arrival_ns;  /* see rts_next_arrival; 0: by position */
    uint32_t messages_waiting; /* see rts_messages_waiting */
    uint32_t reserved1[11];
};

/* The argument of a handler. Valid during the call. */
struct rts_funargs {
    uint32_t size;                     /* of this struct */
    int32_t descriptor;                /* of the handler; -1 in a trial, see rts_create */
    void *pcb;                         /* protocol control block: as given to rts_create */
    volatile struct rts_shared *smstr; /* shared memory structure */
};

typedef void (*rts_handler_fn)(struct rts_funargs *args);

/* Timing attributes of a handler. Admission reserves CPU time by them. */
struct rts_attr {
    uint32_t size;        /* sizeof(struct rts_attr) */
    uint32_t batch;       /* B: PDUs per period, 1 to 1000000; 0: 1 */
    uint32_t quantum;     /* b: PDUs that run without interruption, 1 to B; 0: 1 */
    uint32_t flags;       /* RTS_ABORT_PHASE, RTS_WORK_CONSERVING, RTS_SAME_CPU, or 0 */
    uint64_t period_ns;   /* 1 ns to 3600 s */
    uint64_t cost_ns;     /* CPU time of a PDU; 0: measured, see rts_create */
    uint64_t deadline_ns; /* from release to the end of the batch; at most and 0: the period */
    uint64_t offset_ns;   /* from rts_run to the first release */
    const char *name;     /* UTF-8, for messages; unique. NULL: "rts" and the descriptor */
    /* The terms of single policies. Other policies do not read them. */
    uint32_t share_ppm;      /* ps: fixed share of the CPU in millionths, up to 1000000; 0: none */
    uint32_t weight;         /* ps: part of what shares leave, up to 1000000; 0: 1 */
    uint32_t window_misses;  /* dwcs: x of the window x/y: periods that may be missed, ... */
    uint32_t window_periods; /* ... y: of so many in a row, x < y <= 65535; 0: none may */
    uint32_t work_class;     /* dws: RTS_REAL_TIME, RTS_INTERACTIVE or RTS_BACKGROUND */
    uint32_t workahead;      /* dws: messages ahead of their logical arrivals, up to 1000000 */
    uint64_t delay_bound_ns; /* dws: logical arrival to deadline, up to 3600 s; 0: deadline_ns */
    /* For all policies but dwcs, which drops the jobs that it cannot run in time. */
    uint32_t backlog;        /* RTS_CATCH_UP, RTS_SKIP or RTS_LATEST; 0: RTS_CATCH_UP */
    int32_t same_cpu_as;     /* with RTS_SAME_CPU: a descriptor; without: 0 */
};
#define RTS_ATTR_INIT \
    {sizeof(struct rts_attr), 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* Values of work_class. Handlers of the last two have no deadline and no promise. An
 * interactive one goes before all work ahead, a background one after it. */
#define RTS_REAL_TIME UINT32_C(0)
#define RTS_INTERACTIVE UINT32_C(1)
#define RTS_BACKGROUND UINT32_C(2)

/* Values of backlog: what becomes of jobs that wait too long, because the handler was late, took
 * longer than declared, or the process was stopped. A dropped job counts as a miss, and as
 * skipped, in rts_stats. The upcalls of the next job find the number of dropped jobs in
 * smstr->jobs_skipped. A job that began is never cut. */
#define RTS_BACKLOG_DEFAULT UINT32_C(0) /* RTS_CATCH_UP */
#define RTS_CATCH_UP UINT32_C(1)        /* every job runs, in order */
#define RTS_SKIP UINT32_C(2)            /* a job not begun by its deadline is dropped */
#define RTS_LATEST UINT32_C(3)          /* a job not begun when a newer one comes is dropped */

/* Gives a handler an abort phase. If the handler is active when the process ends in an
 * orderly way (rts_abort, exit(3), a return from main), the library calls it each period
 * with smstr->abort set, until it calls rts_finish. So the handler can close its
 * connection to a peer. Without the flag the handler is suspended at once. A process that
 * a signal kills has no abort phase: catch the signal, and let a thread call rts_abort or
 * exit. */
#define RTS_ABORT_PHASE UINT32_C(1)

/* dwcs: the handler may be called again in a period while no other handler needs the CPU. */
#define RTS_WORK_CONSERVING UINT32_C(2)

/* Puts the handler on the CPU of the open handler `same_cpu_as`, or refuses it (-EBUSY) if it
 * does not fit there; no other CPU is tried. Without the flag each handler goes to the first
 * CPU that has room. The CPU of a handler never changes. */
#define RTS_SAME_CPU UINT32_C(4)

/* The configuration of the library.
 *
 * Under a daemon (upcalld) the process is one domain among others. Its handlers and those
 * of the other processes stand in one order. The daemon decides admission, the CPUs and the
 * cost of a hand-off (cpus is then ignored). While a handler waits in the kernel (a page
 * fault, a system call), handlers of other processes run. If the daemon ends, handlers
 * continue with their reservations, and rts_create fails with -ECONNREFUSED. */
struct rts_config {
    uint32_t size;        /* sizeof(struct rts_config) */
    uint32_t cpu_count;   /* of cpus; 0: all allowed but CPU 0, or the only one */
    const uint32_t *cpus; /* CPUs the handlers may use */
    const char *policy;   /* rmdp, rm, dws, ps or dwcs; NULL: rmdp; with a daemon: the daemon's */
    const char *socket;   /* of the daemon; NULL: $UPCALL_SOCKET, if set; "": no daemon */
    const char *domain;   /* name of the process there, UTF-8; NULL: of the program's file */
    const char *memory_lock; /* all, on-fault or off, see below; NULL: all */
};
#define RTS_CONFIG_INIT {sizeof(struct rts_config), 0, NULL, NULL, NULL, NULL, NULL}

/* memory_lock says which memory of the process is locked (mlockall(2)). "all": all present and
 * future memory, so that no handler waits for a page; the whole stack of each thread is in
 * memory. "on-fault": each page from its first use on, so that a handler waits only for a page
 * that nobody used before. "off": no memory. */

/* A set of descriptors. */
struct rts_mask {
    uint32_t size;     /* sizeof(struct rts_mask) */
    uint32_t reserved; /* 0 */
    uint64_t bits[RTS_DESCRIPTORS_MAX / 64];
};
#define RTS_MASK_INIT {sizeof(struct rts_mask), 0, {0}}

/* Statistics of a handler since its creation. A job is one period's work. */
struct rts_stats {
    uint32_t size;             /* sizeof(struct rts_stats); set to what the library filled */
    uint32_t active;           /* 1: run, and neither suspended nor finished since */
    uint64_t upcalls;          /* calls of the handler */
    uint64_t pdus;             /* PDUs begun, those of an unfinished job included */
    uint64_t jobs;             /* that ended or were dropped */
    uint64_t misses;           /* of these, ended after their deadline or dropped */
    uint64_t quantum_overruns; /* quanta that took longer than quantum * cost */
    uint64_t count_errors;     /* upcalls with an impossible pdu_count, corrected */
    uint64_t response_ns_p50;  /* release to end of a job: median, ... */
    uint64_t response_ns_p99;
    uint64_t response_ns_max;
    uint64_t wakeup_ns_max; /* release to first upcall */
    uint64_t cost_ns_mean;  /* observed CPU time of a PDU, smoothed */
    int64_t slack_ns_min;   /* deadline minus end, negative: missed; INT64_MAX before the first */
    uint64_t skipped;       /* of the misses, dropped before they began; see RTS_SKIP */
};
#define RTS_STATS_INIT {sizeof(struct rts_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* An action of a watchdog against this process: a handler kept a CPU for too long. */
struct rts_offence {
    uint32_t size;     /* sizeof(struct rts_offence); set to what the library filled */
    uint32_t cpu;      /* the CPU */
    uint32_t measure;  /* RTS_OUT_PRIORITISED, ... */
    uint32_t reserved; /* 0 */
    uint64_t held_ns;  /* CPU time for which the CPU was kept */
};
#define RTS_OFFENCE_INIT {sizeof(struct rts_offence), 0, 0, 0, 0}

/* The measures of a watchdog against the thread that runs the handlers of a CPU. */
#define RTS_OUT_PRIORITISED UINT32_C(1) /* the other domains go first */
#define RTS_DEMOTED UINT32_C(2)         /* it is in the ordinary class */
#define RTS_KILLED UINT32_C(3)          /* the process gets SIGKILL */
#define RTS_DISBELIEVED UINT32_C(4)     /* as 1, for a rank that was not admitted */
#define RTS_SLOWED UINT32_C(5)          /* the daemon looks for its work each millisecond only */
#define RTS_LOCK_WAIT UINT32_C(6)       /* it waited for priority-inheritance locks */
#define RTS_LEFT_CPU UINT32_C(7)        /* as 1: it left its CPU, and is pinned again */

/* Sets the library up; `config` NULL: with RTS_CONFIG_INIT. The call is optional: the first
 * rts_create sets the library up too. Blocks for some milliseconds. Locks the memory of the
 * process as `memory_lock` says, if the process has that right.
 * -EALREADY: it is set up. -EINVAL: no such CPU, policy or memory_lock. -EAGAIN: no thread.
 * -ECONNREFUSED: no daemon at the named socket, or the daemon refuses this process. */
int rts_init(const struct rts_config *config);

/* Closes every handler and ends the library's threads. It may be set up again.
 * Returns 0 also if it is not set up. -ETIMEDOUT: a handler did not return within half a
 * second. The handler is left running, so its data must stay valid. */
int rts_exit(void);

/* As rts_exit, after an abort phase of at most `timeout_ns` for the active handlers that
 * have one (RTS_ABORT_PHASE). A handler whose period is longer may not be called any more.
 * -ETIMEDOUT also if a handler had not finished by then; rts_refusal() names it.
 * -EINVAL: a negative timeout.
 *
 * exit(3) and a return from main do the same, with half a second, in the order of
 * atexit(3): before the destruction of objects that were constructed earlier than the first
 * rts_init or rts_create. Handlers that use other objects must be ended before those are
 * destroyed. _exit(2), and exit in a handler, have no abort phase. */
int rts_abort(int64_t timeout_ns);

/* Describes the missing right number `index`, from 0, and its consequences; NULL after
 * the last one. Valid until the next call in this thread. Blocks as rts_init if the library
 * is not set up. */
const char *rts_notice(uint32_t index);

/* Creates a suspended handler, if admission accepts it, and returns its descriptor. Each
 * upcall gets `pcb`. Unless `shared` is NULL, `*shared` becomes the memory that handler and
 * scheduler share.
 *
 * If cost_ns is 0, the handler is first run on trial, in this thread, for up to half a
 * second in all. The PDUs that it processes are consumed.
 *
 * -EBUSY: refused by admission; rts_refusal() names the handler that would miss, rts_hint()
 * a change that would fit. -EINVAL: an attribute out of range. -EEXIST: the name is taken.
 * -EMFILE: no descriptor or no place left. -ENODATA: nothing to measure in the trial.
 * -EBADF: same_cpu_as is no descriptor.
 * -EFAULT: timing or handler is NULL. -E2BIG: timing has a member that this library does
 * not know. And as rts_init. */
int rts_create(const struct rts_attr *timing, rts_handler_fn handler, void *pcb,
               volatile struct rts_shared **shared);

/* The paper's spelling. */
#define rts_creat rts_create

/* Delivers a handler periodically from now on: the handler is active. No effect on an
 * active handler. -EBADF: no such descriptor, here and below. */
int rts_run(int descriptor);

/* The number of the CPU that a handler runs on, 0 or more. A running handler finds it by
 * sched_getcpu(3). */
int rts_cpu(int descriptor);

/* Stops the present and future delivery of a handler. A pending upcall is dropped. A
 * running upcall must return at its next quantum boundary; this call does not wait for
 * that. A handler may suspend itself. */
int rts_suspend(int descriptor);

/* Suspends a handler, waits until it no longer runs, and frees its resources. After a
 * return of 0 its pcb may be freed, and its shared memory is gone. -ETIMEDOUT: the handler
 * did not return within half a second; call again. */
int rts_close(int descriptor);

/* Waits until at least one handler of `waited` is inactive, and sets the inactive ones in
 * `*inactive`, which may be NULL or `waited` itself. Returns the number of inactive handlers;
 * 0 if `timeout_ns` passed (negative: no timeout) or `waited` is empty. A handler that was
 * never run, or that was closed meanwhile, is inactive. A signal does not end the wait. */
int rts_sleep(const struct rts_mask *waited, struct rts_mask *inactive, int64_t timeout_ns);

/* Fills in `statistics`. They are complete once rts_sleep has reported the handler as
 * inactive. */
int rts_statistics(int descriptor, struct rts_stats *statistics);

/* Fills in `offence` with the oldest action of a watchdog that was not taken yet, and returns
 * 1; returns 0 if there is none. Under a daemon the daemon's watchdog acts. Without one, a
 * thread of the library does, if the process has the real-time class: it puts the thread of a
 * CPU into the ordinary class while an upcall uses more CPU time than its PDUs declare, plus
 * the larger of that and 50 ms, or if the thread did not sleep for longer than 1 s plus the
 * CPU time of two jobs of each handler. Take offences before rts_exit. Blocks as rts_init if
 * the library is not set up, with its errors. */
int rts_next_offence(struct rts_offence *offence);

/* Describes a code that a call returned. Never NULL; static. */
const char *rts_strerror(int code);

/* rts_refusal() gives the reason of the last failure in this thread, "" if no call failed.
 * rts_hint() gives a change that admission would accept, "" if admission did not refuse.
 * Both are valid until the next failure in this thread. */
const char *rts_refusal(void);
const char *rts_hint(void);

/* Not for programs: rts_proceed calls it at a quantum boundary. */
int rts_boundary(volatile struct rts_shared *shared);

/* Returns 1 if the handler may process one more PDU now. On 0 the handler must return. Call
 * it once before each PDU, and only if there is one: each return of 1 counts as a PDU.
 * Inside a quantum it takes a comparison and an increment, at its end a function call, a
 * clock read and a flag. It makes no system call. Outside a handler it returns 0. */
static inline int rts_proceed(volatile struct rts_shared *shared)
{
    uint32_t count = shared->pdu_count;
    if (count < shared->pdu_granted) {
        shared->pdu_count = count + 1;
        return 1;
    }
    return rts_boundary(shared);
}

/* Requests no further upcalls: when the handler returns, its job is done and the handler is
 * suspended. */
static inline void rts_finish(volatile struct rts_shared *shared)
{
    shared->finish = 1;
}

/* Says that `messages` messages wait beyond this job, each the work of a further job. Under dws
 * each becomes a job at once, up to `workahead` periods ahead of its release. Messages beyond
 * that limit wait for their releases. Under other policies every message waits. The last call
 * of an upcall counts, and only if the upcall ends its job. */
static inline void rts_messages_waiting(volatile struct rts_shared *shared, uint32_t messages)
{
    shared->messages_waiting = messages;
}

/* Says that the message after this job logically arrives at `at_ns` (CLOCK_MONOTONIC, above 0),
 * because its timestamp says so. Its job is released then, and later ones follow by the period.
 * No effect before the next release, because the declared rate holds. If the message waits
 * already, call rts_messages_waiting(shared, 1) too. The last call of an upcall counts. */
static inline void rts_next_arrival(volatile struct rts_shared *shared, uint64_t at_ns)
{
    shared->next_arrival_ns = at_ns;
}

/* Adds a descriptor to a set, removes it, looks for it. Out of range: no effect, 0. */
static inline void rts_mask_add(struct rts_mask *mask, int descriptor)
{
    if (descriptor >= 0 && descriptor < RTS_DESCRIPTORS_MAX)
        mask->bits[descriptor / 64] |= UINT64_C(1) << (descriptor % 64);
}

static inline void rts_mask_remove(struct rts_mask *mask, int descriptor)
{
    if (descriptor >= 0 && descriptor < RTS_DESCRIPTORS_MAX)
        mask->bits[descriptor / 64] &= ~(UINT64_C(1) << (descriptor % 64));
}

static inline int rts_mask_has(const struct rts_mask *mask, int descriptor)
{
    return descriptor >= 0 && descriptor < RTS_DESCRIPTORS_MAX
        && ((mask->bits[descriptor / 64] >> (descriptor % 64)) & 1) != 0;
}

/* The layout is fixed. The library asserts the same sizes. */
#ifdef __cplusplus
#define RTS_ASSERT_SIZE(type, bytes) static_assert(sizeof(type) == (bytes), "size of " #type)
#else
#define RTS_ASSERT_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type)
#endif
RTS_ASSERT_SIZE(struct rts_shared, 128);
RTS_ASSERT_SIZE(struct rts_mask, 136);
RTS_ASSERT_SIZE(struct rts_stats, 112);
#if UINTPTR_MAX == UINT64_MAX
RTS_ASSERT_SIZE(struct rts_funargs, 24);
RTS_ASSERT_SIZE(struct rts_attr, 96);
RTS_ASSERT_SIZE(struct rts_config, 48);
#endif
#undef RTS_ASSERT_SIZE

#ifdef __cplusplus
}
#endif

#endif
