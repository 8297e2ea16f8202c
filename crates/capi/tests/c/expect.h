/* What a test in C expects: the first thing that does not hold is printed, and ends it. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>
#include <upcall.h>

/* How it ends. */
#ifndef EXPECT_END
#define EXPECT_END exit
#endif

#define EXPECT(what)                                                                               \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s does not hold (last refusal: %s)\n", __LINE__, #what,     \
                    rts_refusal());                                                                \
            EXPECT_END(1);                                                                         \
        }                                                                                          \
    } while (0)

#endif
