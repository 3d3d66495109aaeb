/* solve: the solver by itself. The answer can be asked for at any time: by --timeout, SIGINT or SIGTERM. */
#include "driver/commands.h"

#include "driver/plan_file.h"
#include "driver/watch.h"
#include "ir/base/file.h"
#include "ir/base/text.h"
#include "passes/solve/problem_file.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PHASES = 32 };
/* Of the time: for the last step of the solver, which looks at the clock between steps, and the check. */
#define RESERVE 0.03
#define MOST_RESERVE 5.0

typedef struct session {
    ap_ctx *ctx;
    const ap_options *opt;
    ap_watch *watch;
    ap_problem_file file;
    ap_solution solution;
    double seconds, seconds_to_best;
    struct {
        const char *name;
        double seconds;
    } phase[MAX_PHASES];
    uint32_t nphases, now; /* which phase is on */
    double since, shown;
    int64_t best;
    bool terminal;
} session;

/* ---- what is told on the way ---- */

static void enter_phase(session *s, const char *name)
{
    double t = ap_watch_seconds(s->watch);
    if (s->nphases > 0)
        s->phase[s->now].seconds += t - s->since;
    s->since = s->nphases > 0 ? t : 0;
    for (s->now = 0; s->now < s->nphases && strcmp(s->phase[s->now].name, name) != 0; s->now++) {
    }
    if (s->now == s->nphases && s->nphases < MAX_PHASES)
        s->phase[s->nphases++].name = name;
    s->now = s->now < s->nphases ? s->now : s->nphases - 1;
}

static void show(session *s, int64_t bound)
{
    if (!s->terminal || s->since - s->shown < 0.2)
        return;
    s->shown = s->since;
    fprintf(stderr, "\r\033[K%.1f s  %s", s->since, s->phase[s->now].name);
    if (s->best != INT64_MAX)
        fprintf(stderr, "  cost %" PRId64, s->best);
    if (bound != INT64_MIN)
        fprintf(stderr, "  bound %" PRId64, bound);
    fflush(stderr);
}

static void progress(void *user, const char *phase, int64_t cost, int64_t bound)
{
    session *s = user;
    enter_phase(s, phase);
    if (cost < s->best) {
        s->best = cost;
        s->seconds_to_best = s->since;
    }
    show(s, bound);
}

/* ---- the work ---- */

static ap_status read_options(session *s, ap_solve_options *out, double *timeout)
{
    const ap_options *opt = s->opt;
    int64_t n = sysconf(_SC_NPROCESSORS_ONLN);
    ap_solve_defaults(out);
    *timeout = 0;
    if (opt->timeout) {
        AP_TRY(ap_option_seconds(s->ctx, "timeout", opt->timeout, timeout));
        out->work = 0;
    }
    if (opt->budget)
        AP_TRY(ap_option_int(s->ctx, "budget", opt->budget, 1, INT64_MAX / 2, &out->work));
    if (opt->threads)
        AP_TRY(ap_option_int(s->ctx, "threads", opt->threads, 1, 256, &n));
    out->threads = (uint32_t)ap_max_i64(n, 1);
    out->progress = progress;
    out->user = s;
    return AP_OK;
}

/* The solver's words get the name of the file. */
static ap_status name_file(session *s, ap_status status)
{
    if (status == AP_ERR_MODEL && s->ctx->diags.len > 0) {
        ap_diag *d = &s->ctx->diags.at[s->ctx->diags.len - 1];
        d->text = ap_name_str(s->ctx, ap_name_format(s->ctx, "%s: %s", s->opt->subject, d->text));
    }
    return status;
}

static ap_status solve(session *s)
{
    ap_solve_options options;
    double timeout;
    AP_TRY(read_options(s, &options, &timeout));
    AP_TRY(ap_watch_start(s->ctx, timeout, &s->watch));
    s->best = INT64_MAX;
    s->terminal = isatty(STDERR_FILENO) && !s->opt->quiet;
    enter_phase(s, "read");
    AP_TRY(ap_problem_read(s->ctx, &s->ctx->arena, s->opt->subject, &s->file));
    options.stop = ap_watch_flag(s->watch);
    if (timeout > 0)
        options.time_limit = fmax(timeout - fmin(RESERVE * timeout, MOST_RESERVE) - ap_watch_seconds(s->watch), 0.001);
    enter_phase(s, "solve");
    AP_TRY(name_file(s, ap_solve(s->ctx, &s->ctx->arena, &s->file.problem, &options, &s->solution)));
    enter_phase(s, "check");
    if (s->terminal)
        fputs("\r\033[K", stderr);
    if (s->solution.result == AP_SOLVED && s->solution.cost < s->best)
        s->seconds_to_best = s->since;
    return AP_OK;
}

/* By the numbers of the file. */
static ap_status check(session *s)
{
    const ap_solution *x = &s->solution;
    __int128 cost, peak;
    if (!ap_problem_file_check(&s->ctx->arena, &s->file, x->choice, &cost, &peak) || cost != x->cost || peak != x->peak)
        return ap_fail(s->ctx, AP_ERR_BUG, 0, "%s: the solver's answer does not pass its check", s->opt->subject);
    return AP_OK;
}

static ap_status nothing(session *s)
{
    const ap_solution *x = &s->solution;
    const char *path = s->opt->subject;
    int64_t limit = s->file.limit;
    if (limit < 0)
        return ap_fail(s->ctx, AP_ERR_NO_PLAN, 0, "%s: no solution (proven): the limit is %" PRId64, path, limit);
    if (x->result == AP_SOLVE_INFEASIBLE && x->least_peak == 0)
        return ap_fail(s->ctx, AP_ERR_NO_PLAN, 0, "%s: no solution (proven): forbidden entries exclude every choice",
                       path);
    ap_text least;
    ap_text_init(&least, &s->ctx->arena);
    if (x->least_peak > 0)
        ap_text_addf(&least, "; what obeys the forbidden entries holds at least %" PRId64, x->least_peak);
    if (limit != INT64_MAX)
        ap_text_addf(&least, "; the limit is %" PRId64, limit);
    return ap_fail(s->ctx, AP_ERR_NO_PLAN, 0, "%s: %s%s", path,
                   x->result == AP_SOLVE_INFEASIBLE ? "no solution (proven)"
                                                    : "no solution found in the time or work given",
                   ap_text_str(&least));
}

/* ---- results ---- */

static void add_solution(const session *s, ap_text *t)
{
    ap_text_add(t, "[");
    for (uint32_t v = 0; v < s->file.problem.nnodes; v++)
        ap_text_addf(t, "%s%" PRIu32, v ? ", " : "", s->solution.choice[v]);
    ap_text_add(t, "]");
}

static double gap(const ap_solution *x)
{
    return x->cost == x->bound ? 0 : ((double)x->cost - (double)x->bound) / fmax(fabs((double)x->cost), 1);
}

/* cJSON's numbers are doubles. */
static void add_int(session *s, cJSON *o, const char *key, int64_t x)
{
    cJSON_AddRawToObject(o, key, ap_name_str(s->ctx, ap_name_format(s->ctx, "%" PRId64, x)));
}

static ap_status json_text(session *s, const char *solution_or_null, const char **out)
{
    const ap_solution *x = &s->solution;
    cJSON *o = cJSON_CreateObject(), *phases;
    cJSON_AddStringToObject(o, "name", s->file.name);
    cJSON_AddNumberToObject(o, "nodes", s->file.problem.nnodes);
    cJSON_AddNumberToObject(o, "edges", s->file.problem.nedges);
    add_int(s, o, "cost", x->cost);
    if (x->bound == INT64_MIN)
        cJSON_AddNullToObject(o, "bound");
    else
        add_int(s, o, "bound", x->bound);
    cJSON_AddNumberToObject(o, "gap", gap(x));
    cJSON_AddStringToObject(o, "proof", x->proof);
    add_int(s, o, "peak", x->peak);
    if (s->file.limit != INT64_MAX)
        add_int(s, o, "usage_limit", s->file.limit);
    cJSON_AddNumberToObject(o, "seconds", s->seconds);
    cJSON_AddNumberToObject(o, "seconds_to_best", s->seconds_to_best);
    phases = cJSON_AddObjectToObject(o, "phases");
    for (uint32_t i = 0; i < s->nphases; i++)
        cJSON_AddNumberToObject(phases, s->phase[i].name, s->phase[i].seconds);
    if (solution_or_null)
        cJSON_AddRawToObject(o, "solution", solution_or_null);
    return ap_json_text(s->ctx, o, out);
}

static void print_summary(const session *s)
{
    const ap_solution *x = &s->solution;
    printf("cost %" PRId64 ", ", x->cost);
    if (x->bound != INT64_MIN)
        printf("bound %" PRId64 ", gap %g%s%s; ", x->bound, gap(x), strcmp(x->proof, "none") ? ", proven by " : "",
               strcmp(x->proof, "none") ? x->proof : "");
    printf("peak %" PRId64, x->peak);
    if (s->file.limit != INT64_MAX)
        printf(" of %" PRId64, s->file.limit);
    printf("; %" PRIu32 " nodes, %" PRIu32 " edges; %.2f s, best after %.2f s\n", s->file.problem.nnodes,
           s->file.problem.nedges, s->seconds, s->seconds_to_best);
}

/* An answer that cannot be written to its file is printed all the same: it may have taken an hour. All texts are made
 * before anything is written, so that a lack of memory leaves nothing behind. */
static ap_status report(session *s)
{
    ap_text line, file;
    const char *json = NULL, *whole = NULL;
    ap_status written = AP_OK;
    ap_text_init(&line, &s->ctx->arena);
    ap_text_init(&file, &s->ctx->arena);
    add_solution(s, &line);
    ap_text_addf(&file, "%s\n", ap_text_str(&line));
    enter_phase(s, "check");
    s->seconds = s->since;
    if (s->opt->json)
        AP_TRY(json_text(s, ap_text_str(&line), &whole));
    if (s->opt->json && s->opt->output)
        AP_TRY(json_text(s, NULL, &json));
    if (s->opt->output)
        written = ap_file_write(s->ctx, s->opt->output, ap_text_str(&file), file.len);
    if (s->opt->json) {
        printf("%s\n", s->opt->output && written == AP_OK ? json : whole);
        return written;
    }
    if (!s->opt->quiet)
        print_summary(s);
    fputs(ap_text_str(&file), stdout);
    return written;
}

ap_status ap_cmd_solve(ap_ctx *ctx, const ap_options *opt)
{
    session *s = AP_NEW(&ctx->arena, session);
    s->ctx = ctx;
    s->opt = opt;
    AP_TRY(solve(s));
    if (s->solution.result != AP_SOLVED)
        return nothing(s);
    AP_TRY(check(s));
    return report(s);
}
