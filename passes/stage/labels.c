/* The best labels of a plan whose cuts, choices and devices are given, its transfers priced by where it lies. */
#include "passes/stage/dp.h"

typedef struct chain {
    const ap_stages_problem *p;
    ap_stages_plan *plan;
    const int64_t **time;           /* per stage, [in][out] */
    int64_t **price;                /* per stage but the last: to the next, [out][in] */
    uint32_t *nin, *nout;           /* per stage */
    int64_t **start;                /* per stage, per in label: least sum from here on */
    uint32_t **best_out, **best_in; /* per stage: out label per in label; next stage's in label per out label */
    int64_t *rest;                  /* scratch */
} chain;

static void make_chain(ap_arena *arena, const ap_stages_problem *p, const ap_stages_ranges *r, ap_stages_plan *plan,
                       chain *c)
{
    uint32_t n = plan->nstages, most = 0;
    *c = (chain){.p = p, .plan = plan, .time = AP_NEW_ARRAY(arena, const int64_t *, n)};
    c->price = AP_NEW_ARRAY(arena, int64_t *, n);
    c->nin = AP_NEW_ARRAY(arena, uint32_t, n);
    c->nout = AP_NEW_ARRAY(arena, uint32_t, n);
    c->start = AP_NEW_ARRAY(arena, int64_t *, n);
    c->best_out = AP_NEW_ARRAY(arena, uint32_t *, n);
    c->best_in = AP_NEW_ARRAY(arena, uint32_t *, n);
    for (uint32_t i = 0; i < n; i++) {
        const ap_stages_pick *s = &plan->stage[i];
        c->nin[i] = p->nlabels[(size_t)s->first * p->nchoices + s->choice];
        c->nout[i] = p->nlabels[(size_t)s->last * p->nchoices + s->choice];
        most = c->nout[i] > most ? c->nout[i] : most;
        c->time[i] = r->usable + ap_stages_range(p, r, s->choice, s->first, s->last);
        c->start[i] = AP_NEW_ARRAY(arena, int64_t, c->nin[i]);
        c->best_out[i] = AP_NEW_ARRAY(arena, uint32_t, c->nin[i]);
        c->best_in[i] = AP_NEW_ARRAY(arena, uint32_t, c->nout[i]);
    }
    c->rest = AP_NEW_ARRAY(arena, int64_t, most);
    for (uint32_t i = 0; i + 1 < n; i++) {
        const ap_stages_pick *s = &plan->stage[i];
        c->price[i] = AP_NEW_ARRAY(arena, int64_t, (size_t)c->nout[i] * c->nin[i + 1]);
        for (uint32_t q = 0; q < c->nout[i]; q++)
            for (uint32_t in = 0; in < c->nin[i + 1]; in++)
                c->price[i][(size_t)q * c->nin[i + 1] + in] =
                    ap_stages_price(p, s->last, s->choice, q, s[1].choice, in, ap_stages_near(p, s, s + 1));
    }
}

static void run_rest(chain *c, uint32_t i, int64_t most)
{
    for (uint32_t q = 0; q < c->nout[i]; q++) {
        c->rest[q] = i + 1 < c->plan->nstages ? AP_STAGES_INF : 0;
        for (uint32_t in = 0; i + 1 < c->plan->nstages && in < c->nin[i + 1]; in++) {
            int64_t x = c->price[i][(size_t)q * c->nin[i + 1] + in];
            if (x > most || x + c->start[i + 1][in] >= c->rest[q])
                continue;
            c->rest[q] = x + c->start[i + 1][in];
            c->best_in[i][q] = in;
        }
    }
}

/* The least sum where no time exceeds `most`. */
static int64_t run(chain *c, int64_t most)
{
    for (uint32_t i = c->plan->nstages; i-- > 0;) {
        run_rest(c, i, most);
        for (uint32_t in = 0; in < c->nin[i]; in++) {
            c->start[i][in] = AP_STAGES_INF;
            for (uint32_t q = 0; q < c->nout[i]; q++) {
                int64_t t = c->time[i][(size_t)in * c->nout[i] + q];
                if (t > most || t + c->rest[q] >= c->start[i][in])
                    continue;
                c->start[i][in] = t + c->rest[q];
                c->best_out[i][in] = q;
            }
        }
    }
    int64_t least = AP_STAGES_INF;
    for (uint32_t in = 0; in < c->nin[0]; in++)
        least = ap_min_i64(least, c->start[0][in]);
    return least;
}

/* The labels of the last run; returns the bottleneck. */
static int64_t read_labels(const chain *c, int64_t least, uint32_t *in, uint32_t *out)
{
    int64_t bottleneck = 0;
    uint32_t label = 0;
    while (c->start[0][label] != least)
        label++;
    for (uint32_t i = 0; i < c->plan->nstages; i++) {
        in[i] = label;
        out[i] = c->best_out[i][label];
        bottleneck = ap_max_i64(bottleneck, c->time[i][(size_t)in[i] * c->nout[i] + out[i]]);
        if (i + 1 == c->plan->nstages)
            break;
        label = c->best_in[i][out[i]];
        bottleneck = ap_max_i64(bottleneck, c->price[i][(size_t)out[i] * c->nin[i + 1] + label]);
    }
    return bottleneck;
}

static void write_plan(const chain *c, const ap_stages_ranges *r)
{
    ap_stages_plan *plan = c->plan;
    for (uint32_t i = 0; i < plan->nstages; i++) {
        ap_stages_pick *s = &plan->stage[i];
        size_t at = (size_t)s->in * c->nout[i] + s->out;
        s->time = c->time[i][at];
        s->memory = r->memory[ap_stages_range(c->p, r, s->choice, s->first, s->last) + at];
        s->transfer = i + 1 < plan->nstages ? c->price[i][(size_t)s->out * c->nin[i + 1] + plan->stage[i + 1].in] : 0;
    }
}

bool ap_stages_best_labels(ap_arena *scratch, const ap_stages_problem *p, const ap_stages_ranges *r,
                           ap_stages_plan *plan)
{
    chain c;
    make_chain(scratch, p, r, plan, &c);
    uint32_t *in = AP_NEW_ARRAY(scratch, uint32_t, plan->nstages),
             *out = AP_NEW_ARRAY(scratch, uint32_t, plan->nstages);
    int64_t most = AP_STAGES_LONGEST;
    __int128 best = INT64_MAX;
    /* A smaller bottleneck costs at least the sum found so far (search.c). */
    for (;;) {
        int64_t sum = run(&c, most);
        if (sum >= AP_STAGES_INF)
            break;
        int64_t bottleneck = read_labels(&c, sum, in, out);
        __int128 total = sum + (__int128)bottleneck * (p->microbatches - 1);
        if (total < best) {
            best = total;
            plan->sum = sum;
            plan->bottleneck = bottleneck;
            for (uint32_t i = 0; i < plan->nstages; i++) {
                plan->stage[i].in = in[i];
                plan->stage[i].out = out[i];
            }
        }
        if (bottleneck == 0 || sum >= best)
            break;
        most = bottleneck - 1;
    }
    plan->total = (int64_t)best;
    if (best == INT64_MAX)
        return false;
    write_plan(&c, r);
    return true;
}
