/* A process that ends while its handlers are active. The argument says how it ends. Each
 * handler prints its steps when the process ends. Asserts on order and codes. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <upcall.h>

/* exit() would begin the abort phase under test. */
#define EXPECT_END _exit
#include "expect.h"

/* A connection. Its handler closes it in three steps, one per period. */
struct pcb {
    const char *name;
    _Atomic unsigned upcalls;
    unsigned steps;
};

static void say(const char *name, const char *what)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s %s\n", name, what);
    EXPECT(write(STDOUT_FILENO, line, (size_t)length) == length);
}

static void handler(struct rts_funargs *args)
{
    struct pcb *pcb = args->pcb;
    pcb->upcalls++;
    while (rts_proceed(args->smstr))
        ;
    if (args->smstr->abort == 0)
        return;
    if (++pcb->steps == 1)
        say(pcb->name, "resets");
    if (pcb->steps == 3) {
        say(pcb->name, "is free");
        rts_finish(args->smstr);
    }
}

/* Ignores the field `abort`. */
static void deaf(struct rts_funargs *args)
{
    struct pcb *pcb = args->pcb;
    pcb->upcalls++;
    while (rts_proceed(args->smstr))
        ;
}

static void start(struct pcb *pcb, rts_handler_fn function, uint32_t flags)
{
    struct rts_attr attr = RTS_ATTR_INIT;
    attr.name = pcb->name;
    attr.period_ns = 5000000;
    attr.cost_ns = 10000;
    attr.flags = flags;
    int descriptor = rts_create(&attr, function, pcb, NULL);
    EXPECT(descriptor >= 0 && rts_run(descriptor) == 0);
    while (pcb->upcalls == 0)
        ;
}

static void last_of_all(void)
{
    say("main", "is over");
}

int main(int argc, char **argv)
{
    static struct pcb polite = {"polite", 0, 0}, plain = {"plain", 0, 0};
    static struct pcb stubborn = {"stubborn", 0, 0};
    EXPECT(argc == 2);
    EXPECT(atexit(last_of_all) == 0); /* before the library: called after it */
    EXPECT(rts_abort(-1) == -EINVAL && rts_abort(0) == 0);
    start(&polite, handler, RTS_ABORT_PHASE);
    start(&plain, handler, 0);
    if (strcmp(argv[1], "return") == 0)
        return 0;
    if (strcmp(argv[1], "signal") == 0) {
        /* A program that ends in an orderly way on SIGTERM: a thread waits for the signal. */
        sigset_t set;
        int caught;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        EXPECT(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && kill(getpid(), SIGTERM) == 0);
        EXPECT(sigwait(&set, &caught) == 0 && caught == SIGTERM);
        exit(0);
    }
    if (strcmp(argv[1], "exit") == 0) {
        EXPECT(rts_exit() == 0); /* not the end of the process: no output */
        return 0;
    }
    EXPECT(strcmp(argv[1], "stubborn") == 0);
    start(&stubborn, deaf, RTS_ABORT_PHASE);
    EXPECT(rts_abort(INT64_C(1000000000)) == -ETIMEDOUT);
    EXPECT(strstr(rts_refusal(), "`stubborn` did not finish") != NULL);
    EXPECT(rts_run(0) == -EBADF);
    return 0;
}
