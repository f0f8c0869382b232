/*
 * A program with the fault that memcheck is there for, a decision by memory that nobody wrote: the test of the memory
 * check begins by seeing it caught.
 */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    unsigned char *volatile bytes = malloc(16); /* volatile: no compiler may know better */
    if (bytes == NULL)
        return 1;
    bytes[0] = 1;
    puts(bytes[8] > 7 ? "more" : "less");
    free(bytes);
    return 0;
}
