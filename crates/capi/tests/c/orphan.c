/* A domain whose daemon ends. Argument: a file to create once the domain runs. It creates and
 * closes handlers until the daemon is gone. Its first handler must then still be upcalled. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <upcall.h>
#include "expect.h"

static void handler(struct rts_funargs *args)
{
    atomic_uint *upcalls = args->pcb;
    atomic_fetch_add(upcalls, 1);
    while (rts_proceed(args->smstr))
        ;
}

int main(int argc, char **argv)
{
    static atomic_uint upcalls, none;
    struct rts_attr attr = RTS_ATTR_INIT;
    int probe, given = 0;
    EXPECT(argc == 2);
    attr.period_ns = 5000000;
    attr.cost_ns = 10000;
    int descriptor = rts_create(&attr, handler, &upcalls, NULL);
    EXPECT(descriptor == 0 && rts_run(descriptor) == 0);
    while (atomic_load(&upcalls) < 3)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    while ((probe = rts_create(&attr, handler, &none, NULL)) >= 0) {
        EXPECT(rts_close(probe) == 0);
        if (given++ == 3) {
            FILE *file = fopen(argv[1], "w");
            EXPECT(file != NULL && fclose(file) == 0);
        }
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    EXPECT(probe == -ECONNREFUSED && given > 3);
    unsigned seen = atomic_load(&upcalls);
    while (atomic_load(&upcalls) < seen + 3)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    EXPECT(rts_exit() == 0);
    puts("an orphan");
    return 0;
}
