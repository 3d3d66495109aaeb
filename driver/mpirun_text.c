/* See the header. Open MPI 4 frames what it has to say by lines of 74 dashes. */
#include "driver/mpirun_text.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DASHES = 74, LONGEST_NOTICE = 60 };

void ap_mpirun_text_open(ap_mpirun_text *t, int from)
{
    *t = (ap_mpirun_text){.from = from, .rank = -1};
    fcntl(from, F_SETFL, fcntl(from, F_GETFL) | O_NONBLOCK);
}

static void read_notice(ap_mpirun_text *t)
{
    const char *who = strstr(t->line, "process rank ");
    int rank, sig;
    char host[sizeof t->host];
    if (!who || t->rank >= 0 ||
        sscanf(who, "process rank %d with PID %*d on node %127s exited on signal %d", &rank, host, &sig) != 3)
        return;
    t->rank = rank;
    t->sig = sig;
    memcpy(t->host, host, sizeof host);
}

/* How many notices were left out is no news either, or that one was cut when the job ended (show_help.c), or that the
 * memory of a process is gone from which another one was reading (btl_vader_get.c, errno 3: ESRCH). */
static bool is_about_notices(const char *line)
{
    return *line == '[' && (strstr(line, "sent help message") || strstr(line, "orte_base_help_aggregate") ||
                            (strstr(line, "ORTE_ERROR_LOG") && strstr(line, "show_help.c")) ||
                            (strstr(line, "] Read -1, expected ") && strstr(line, ", errno = 3")));
}

static bool read_report(ap_mpirun_text *t)
{
    static const char mark[] = "AUTOPAR_JOB_FAILED ";
    if (strncmp(t->line, mark, sizeof mark - 1) != 0)
        return false;
    if (!*t->report)
        snprintf(t->report, sizeof t->report, "%s", t->line + sizeof mark - 1);
    return true;
}

static void end_line(ap_mpirun_text *t, const char *end)
{
    t->line[t->n] = 0;
    const bool frame = t->n == DASHES && strspn(t->line, "-") == DASHES;
    t->lines = frame ? 0 : t->lines + 1;
    if (frame || t->lines > LONGEST_NOTICE)
        t->notice = frame && !t->notice;
    if (t->notice)
        read_notice(t);
    else if (!frame && !is_about_notices(t->line) && !read_report(t))
        fprintf(stderr, "%s%s", t->line, end);
    t->n = 0;
}

void ap_mpirun_text_read(ap_mpirun_text *t)
{
    char some[4096];
    for (ssize_t got; (got = read(t->from, some, sizeof some)) > 0;)
        for (ssize_t i = 0; i < got; i++) {
            if (some[i] == '\n' || t->n + 1 == sizeof t->line)
                end_line(t, some[i] == '\n' ? "\n" : "");
            if (some[i] != '\n')
                t->line[t->n++] = some[i];
        }
}

void ap_mpirun_text_close(ap_mpirun_text *t)
{
    ap_mpirun_text_read(t);
    if (t->n > 0)
        end_line(t, "");
    close(t->from);
}
