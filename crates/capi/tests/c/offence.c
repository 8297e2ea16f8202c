/* A handler keeps its CPU until the program has learned of it. Prints "no right" without the
 * real-time class. */
#define _DEFAULT_SOURCE

#include "expect.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static atomic_int known;

static void handler(struct rts_funargs *args)
{
    (void)rts_proceed(args->smstr);
    while (!atomic_load(&known))
        ;
    rts_finish(args->smstr);
}

/* With `numbers`, prints those of the measures in Rust's order. */
int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "numbers") == 0) {
        printf("%u %u %u %u %u %u %u\n", RTS_OUT_PRIORITISED, RTS_DEMOTED, RTS_KILLED,
               RTS_DISBELIEVED, RTS_SLOWED, RTS_LOCK_WAIT, RTS_LEFT_CPU);
        return 0;
    }
    const char *notice;
    for (uint32_t index = 0; (notice = rts_notice(index)) != NULL; index++)
        if (strstr(notice, "no right to the real-time class")) {
            puts("no right");
            return 0;
        }
    struct rts_offence offence = RTS_OFFENCE_INIT;
    EXPECT(rts_next_offence(NULL) == -EFAULT);
    EXPECT(rts_next_offence(&offence) == 0);
    struct rts_attr timing = RTS_ATTR_INIT;
    timing.period_ns = 20000000;
    timing.cost_ns = 50000;
    int descriptor = rts_create(&timing, handler, NULL, NULL);
    EXPECT(descriptor >= 0 && rts_run(descriptor) == 0);
    int found = 0;
    for (int look = 0; look < 1000 && (found = rts_next_offence(&offence)) == 0; look++)
        usleep(10000);
    EXPECT(found == 1);
    EXPECT(offence.size == sizeof offence && offence.measure == RTS_DEMOTED);
    EXPECT(offence.held_ns > 50000000);
    EXPECT(rts_next_offence(&offence) == 0);
    atomic_store(&known, 1);
    EXPECT(rts_close(descriptor) == 0 && rts_exit() == 0);
    puts("one offence");
    return 0;
}
