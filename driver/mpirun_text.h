/* What mpirun and the ranks write to standard error, by way of us: the ranks' lines are passed on, mpirun's framed
 * notices are read for who died, and dropped. A rank that cannot leave its report in our folder, being on another host,
 * writes "AUTOPAR_JOB_FAILED STATUS TEXT" (runtime/waiting.c); the first of these is kept, none is passed on. */
#ifndef AP_DRIVER_MPIRUN_TEXT_H
#define AP_DRIVER_MPIRUN_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ap_mpirun_text {
    int from;    /* the end of a pipe, which does not block */
    bool notice; /* between two lines of dashes */
    int lines;   /* of this notice */
    size_t n;
    char line[1280];
    int rank, sig; /* of the process that a signal ended; rank -1: not heard of */
    char host[128];
    char report[1280]; /* "STATUS TEXT", or empty */
} ap_mpirun_text;

void ap_mpirun_text_open(ap_mpirun_text *t, int from);
/* What is there by now. */
void ap_mpirun_text_read(ap_mpirun_text *t);
/* The last of it, an unfinished line too. */
void ap_mpirun_text_close(ap_mpirun_text *t);

#endif
