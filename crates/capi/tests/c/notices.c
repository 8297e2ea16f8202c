/* Prints the missing rights of the library, one per line. */
#include <stdio.h>
#include <upcall.h>

int main(void)
{
    const char *notice;
    for (uint32_t index = 0; (notice = rts_notice(index)) != NULL; index++)
        puts(notice);
    return 0;
}
