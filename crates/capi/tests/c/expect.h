/* EXPECT of the tests in C: prints the first expression that fails, and ends the program. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>
#include <upcall.h>

/* How a failed program ends. */
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
