/* Prints which rights the library was not given, one a line. */
#include <stdio.h>
#include <upcall.h>

int main(void)
{
    const char *notice;
    for (uint32_t index = 0; (notice = rts_notice(index)) != NULL; index++)
        puts(notice);
    return 0;
}
