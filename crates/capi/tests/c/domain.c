/* A C process as a domain. Arguments: the socket of a daemon in which another domain has
 * half of the CPU, and a path without a listener. Asserts on counts and codes only. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <upcall.h>
#include "expect.h"

static void handler(struct rts_funargs *args)
{
    unsigned *left = args->pcb;
    while (*left > 0 && rts_proceed(args->smstr))
        --*left;
    if (*left == 0)
        rts_finish(args->smstr);
}

/* 45 % of a CPU: fits alone, but not beside one half. */
static int create_greedy(void)
{
    static unsigned none;
    struct rts_attr attr = RTS_ATTR_INIT;
    attr.name = "greedy";
    attr.period_ns = 10000000;
    attr.cost_ns = 4500000;
    return rts_create(&attr, handler, &none, NULL);
}

static void wrong(struct rts_config config, const char *nowhere)
{
    const char *socket = config.socket;
    config.socket = nowhere;
    EXPECT(rts_init(&config) == -ECONNREFUSED && strstr(rts_refusal(), nowhere) != NULL);
    config.socket = socket;
    config.policy = "dws"; /* the daemon has another policy */
    EXPECT(rts_init(&config) == -ECONNREFUSED && strstr(rts_refusal(), "rmdp") != NULL);
    config.policy = "ps";
    EXPECT(rts_init(&config) == -ECONNREFUSED && strstr(rts_refusal(), "quantum") != NULL);
}

int main(int argc, char **argv)
{
    struct rts_config config = RTS_CONFIG_INIT;
    struct rts_attr attr = RTS_ATTR_INIT;
    struct rts_mask mask = RTS_MASK_INIT;
    struct rts_stats seen = RTS_STATS_INIT;
    unsigned left = 40;
    EXPECT(argc == 3);
    config.socket = argv[1];
    config.domain = "from-c";
    wrong(config, argv[2]);
    EXPECT(rts_init(&config) == 0);

    EXPECT(create_greedy() == -EBUSY && *rts_refusal() != 0);
    attr.period_ns = 5000000;
    attr.cost_ns = 50000;
    attr.batch = 2;
    int descriptor = rts_create(&attr, handler, &left, NULL);
    EXPECT(descriptor == 0 && rts_run(descriptor) == 0);
    rts_mask_add(&mask, descriptor);

    /* A forked child has no handlers, does not touch the pages, and may exit in any way. */
    pid_t child = fork();
    if (child == 0)
        exit(rts_run(descriptor) == -ESRCH && rts_abort(0) == -ESRCH ? 0 : 1);
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(rts_sleep(&mask, NULL, -1) == 1);
    EXPECT(left == 0 && rts_statistics(descriptor, &seen) == 0);
    EXPECT(seen.pdus == 40 && seen.jobs == 20 && seen.upcalls >= 20 && seen.count_errors == 0);
    EXPECT(rts_close(descriptor) == 0);
    EXPECT(rts_exit() == 0);

    /* Without the daemon the process has the CPU to itself. */
    config.socket = "";
    EXPECT(rts_init(&config) == 0);
    EXPECT(create_greedy() == 0);
    EXPECT(rts_exit() == 0);
    puts("a domain");
    return 0;
}
