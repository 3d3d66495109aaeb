/* SPDX-License-Identifier: MIT
 *
 * What a rank waits for, as text; and what a job ends with. */
#include "comm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static size_t add(char *out, size_t size, size_t n, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static size_t add(char *out, size_t size, size_t n, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int more = n < size ? vsnprintf(out + n, size - n, fmt, args) : 0;
    va_end(args);
    n += more > 0 ? (size_t)more : 0;
    return n < size ? n : size - 1;
}

size_t aprt_waiting_text(const aprt_layout *l, int32_t rank, const aprt_waiting *w, char *out, size_t size)
{
    const aprt_stage *s = aprt_layout_stage(l, rank);
    bool known = w->at < s->ninstrs;
    size_t n = add(out, size, 0, "rank %d", rank);
    if (l->program->nstages > 1)
        n = add(out, size, n, " (stage \"%.30s\")", s->name);
    if (w->kind == APRT_WAIT_GROUP && w->peer < 0)
        return add(out, size, n, " waits for its group in instruction %u (%.30s, node \"%.40s\")", w->at,
                   known ? s->instr[w->at].what : "?", known ? s->instr[w->at].node : "");
    if (w->kind == APRT_WAIT_GROUP)
        return add(out, size, n, " waits for rank %d in instruction %u (%.30s, node \"%.40s\")", w->peer, w->at,
                   known ? s->instr[w->at].what : "?", known ? s->instr[w->at].node : "");
    if (w->kind == APRT_WAIT_COLLECT && w->peer < 0)
        return add(out, size, n, " waits for all others at the end of a run");
    if (w->kind == APRT_WAIT_COLLECT)
        return add(out, size, n, " waits for rank %d at the end of a run", w->peer);
    return add(out, size, n, " waits for rank %d to %s microbatch %lld of channel \"%.30s\"", w->peer,
               w->kind == APRT_WAIT_RECV ? "send" : "take", (long long)w->mb, l->program->channel[w->what].name);
}

bool aprt_comm_report(int status, const char *text)
{
    const char *path = getenv("AUTOPAR_JOB_FAILED");
    const int fd = path && *path ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644) : -1;
    if (fd < 0 && path && *path && errno != EEXIST) {
        /* another host, without the folder: by way of mpirun, in a line that whoever started the job knows */
        fprintf(stderr, "AUTOPAR_JOB_FAILED %d %s\n", status, text);
        return fflush(stderr) == 0;
    }
    if (fd < 0)
        return path && *path;
    char all[1200];
    const int n = snprintf(all, sizeof all, "%d %s\n", status, text);
    const bool written = write(fd, all, (size_t)n < sizeof all ? (size_t)n : sizeof all - 1) > 0;
    close(fd);
    return written;
}
