/* Convolutions as they are defined, in plain loops that know nothing of layouts, and random ones: shapes, groups,
 * strides, dilations, holes, flips, steps, turns. */
#ifndef TEST_CONV_PROBLEM_H
#define TEST_CONV_PROBLEM_H

#include "autopar_rt.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static inline uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static inline int64_t below(uint64_t *seed, int64_t n)
{
    return (int64_t)(next_random(seed) % (uint64_t)n);
}

/* How problems are drawn. */
typedef struct drawn {
    int32_t dtype;
    bool outermost;             /* channels; else they are innermost */
    bool whole;                 /* numbers are -1, 0, 1, so that all types are exact */
    bool wild;                  /* fewer than no zeros before, strides over holes, one operand for all of a batch */
    bool steps;                 /* something follows */
    int spatial, extent;        /* at most so many dimensions, of at most so many elements (0: 9) */
    const aprt_conv_dim *plane; /* of two dimensions, or NULL */
} drawn;

static inline double number(uint64_t *seed, const drawn *how)
{
    return how->whole ? (double)(below(seed, 3) - 1) : (double)next_random(seed) / (double)(1u << 31) * 2 - 1;
}

typedef struct problem {
    aprt_conv c;
    int64_t turns[4]; /* n, g, m, c */
    int64_t nx, nw, ny, nv;
    double *x, *w, *y, *v; /* v: operands of steps, each of ny elements */
    int nv_used;
} problem;

static inline int64_t product(const aprt_conv *c, int which)
{
    int64_t n = 1;
    for (int d = 0; d < c->nspatial; d++)
        n *= which == 0 ? c->dim[d].in : which == 1 ? c->dim[d].kernel : c->dim[d].out;
    return n;
}

/* Strides without gaps: [.., plane, b, c] or [a, b, c, plane]. */
static inline void set_strides(const aprt_conv *c, int which, const int64_t extent[3], int last, int64_t *stride)
{
    int64_t next = 1;
    for (int turn = 0; turn < 2; turn++) {
        for (int d = c->nspatial - 1; d >= 0 && turn == last; d--) {
            stride[3 + d] = next;
            next *= which == 0 ? c->dim[d].in : which == 1 ? c->dim[d].kernel : c->dim[d].out;
        }
        for (int d = 2; d >= 1 && turn != last; d--) {
            stride[d] = next;
            next *= extent[d];
        }
    }
    stride[0] = next;
}

static inline void draw_window(aprt_conv_dim *d, uint64_t *seed, const drawn *how, bool transposed)
{
    do {
        *d = (aprt_conv_dim){.kernel = 1 + below(seed, 4), .dilate = 1 + below(seed, 2)};
        d->in = 1 + below(seed, how->extent ? how->extent : 9);
        d->stride = transposed && !how->wild ? 1 : 1 + below(seed, 3);
        d->hole = transposed ? 2 + below(seed, 2) : 1;
        d->flip = (transposed && !how->wild) || below(seed, 4) == 0;
        d->lo = below(seed, 4) - (how->wild ? below(seed, 3) : 0);
        int64_t hi = below(seed, 4), span = (d->in - 1) * d->hole + 1 + d->lo + hi,
                reach = (d->kernel - 1) * d->dilate + 1;
        d->out = span < reach ? 0 : (span - reach) / d->stride + 1;
    } while (d->out < 1);
}

static inline void draw_step(problem *p, uint64_t *seed, const drawn *how, int64_t rank)
{
    aprt_conv *c = &p->c;
    aprt_conv_step *s = &c->step[c->nsteps++];
    *s = (aprt_conv_step){.op = (aprt_conv_op)below(seed, 5)};
    if (s->op == APRT_CONV_RELU)
        return;
    int64_t kind = s->op >= APRT_CONV_MAX ? 0 : below(seed, s->op == APRT_CONV_ADD ? 4 : 2);
    s->other = kind == 0 ? APRT_CONV_NUMBER : APRT_CONV_OPERAND;
    s->number = kind == 0 ? (float)number(seed, how) : 0;
    s->operand = kind == 0 ? 0 : p->nv_used++;
    if (kind == 1)
        s->stride[1] = c->m, s->stride[2] = 1;
    if (kind == 3) { /* what is there; once, since it is there once */
        for (int i = 0; i + 1 < c->nsteps; i++)
            kind = c->step[i].other == APRT_CONV_OPERAND && c->step[i].operand < 0 ? 2 : kind;
        s->operand = kind == 3 ? -1 : s->operand;
    }
    for (int64_t d = 0; kind >= 2 && d < rank; d++)
        s->stride[d] = c->y[d];
}

static inline void draw_shape(problem *p, uint64_t *seed, const drawn *how)
{
    aprt_conv *c = &p->c;
    const bool transposed = !how->plane && below(seed, 4) == 0;
    c->dtype = how->dtype;
    c->nspatial = how->plane ? 2 : (int32_t)below(seed, how->spatial + 1);
    c->n = 1 + below(seed, 3);
    c->g = below(seed, 3) ? 1 : 1 + below(seed, 20);
    c->m = below(seed, 3) ? 1 + below(seed, 40) : 1;
    c->c = below(seed, 3) ? 1 + below(seed, 20) : 1;
    for (int d = 0; d < c->nspatial && !how->plane; d++)
        draw_window(&c->dim[d], seed, how, transposed);
    for (int d = 0; d < c->nspatial && how->plane; d++)
        c->dim[d] = how->plane[d];
    set_strides(c, 0, (int64_t[]){c->n, c->g, c->c}, !how->outermost, c->x);
    set_strides(c, 1, (int64_t[]){c->g, c->m, c->c}, below(seed, 3) == 0, c->w);
    set_strides(c, 2, (int64_t[]){c->n, c->g, c->m}, !how->outermost, c->y);
    if (how->wild && below(seed, 8) == 0)
        c->x[0] = 0;
}

static inline void draw_problem(problem *p, uint64_t *seed, const drawn *how)
{
    aprt_conv *c = &p->c;
    memset(p, 0, sizeof *p);
    draw_shape(p, seed, how);
    for (int64_t i = how->steps ? below(seed, 5) : 0; i > 0; i--)
        draw_step(p, seed, how, c->nspatial + 3);
    const int64_t most[4] = {c->n, c->g, c->m, c->c};
    for (int i = 0; i < 4; i++)
        p->turns[i] = below(seed, 4) ? most[i] : below(seed, most[i] + 1);
    p->nx = c->n * c->g * c->c * product(c, 0);
    p->nw = c->g * c->m * c->c * product(c, 1);
    p->ny = c->n * c->g * c->m * product(c, 2);
    p->nv = p->ny * (p->nv_used + 1);
    double **const all[] = {&p->x, &p->w, &p->y, &p->v};
    const int64_t count[] = {p->nx, p->nw, p->ny, p->nv};
    for (int a = 0; a < 4; a++) {
        *all[a] = malloc((size_t)count[a] * sizeof **all[a]);
        for (int64_t i = 0; i < count[a]; i++)
            (*all[a])[i] = (float)number(seed, how);
    }
}

static inline void free_problem(problem *p)
{
    free(p->x);
    free(p->w);
    free(p->y);
    free(p->v);
}

static inline double one_result(const problem *p, const int64_t *at, double before)
{
    const aprt_conv *c = &p->c;
    int64_t taps = product(c, 1), y = 0;
    double sum = 0;
    for (int64_t t = 0; t < taps; t++) {
        int64_t x = at[0] * c->x[0] + at[1] * c->x[1], w = at[1] * c->w[0] + at[2] * c->w[1], rest = t;
        int there = 1;
        for (int d = c->nspatial - 1; d >= 0; d--) {
            const aprt_conv_dim *k = &c->dim[d];
            int64_t tap = rest % k->kernel, used = k->flip ? k->kernel - 1 - tap : tap;
            int64_t i = at[3 + d] * k->stride + used * k->dilate - k->lo;
            rest /= k->kernel;
            there = there && i >= 0 && i % k->hole == 0 && i / k->hole < k->in;
            x += i / k->hole * c->x[3 + d];
            w += tap * c->w[3 + d];
        }
        for (int64_t i = 0; there && i < p->turns[3]; i++)
            sum += p->x[x + i * c->x[2]] * p->w[w + i * c->w[2]];
    }
    for (int i = 0; i < c->nsteps; i++) {
        const aprt_conv_step *s = &c->step[i];
        double o = s->number;
        y = 0;
        for (int d = 0; d < c->nspatial + 3; d++)
            y += at[d] * s->stride[d];
        if (s->other == APRT_CONV_OPERAND)
            o = s->operand < 0 ? before : p->v[s->operand * p->ny + y];
        sum = s->op == APRT_CONV_RELU  ? (sum > 0 ? sum : 0)
              : s->op == APRT_CONV_ADD ? sum + o
              : s->op == APRT_CONV_MUL ? sum * o
              : s->op == APRT_CONV_MAX ? (sum > o ? sum : o)
                                       : (sum < o ? sum : o);
    }
    return sum;
}

/* Calls see(user, place in y, what belongs there) for each result of the rank. */
static inline void each_result(const problem *p, void (*see)(void *user, int64_t y, double want), void *user)
{
    const aprt_conv *c = &p->c;
    int64_t at[APRT_MAX_RANK] = {0}, extent[APRT_MAX_RANK] = {p->turns[0], p->turns[1], p->turns[2]};
    for (int d = 0; d < c->nspatial; d++)
        extent[3 + d] = c->dim[d].out;
    for (int d = 0; d < 3; d++)
        if (extent[d] == 0)
            return;
    for (;;) {
        int64_t y = 0;
        for (int d = 0; d < c->nspatial + 3; d++)
            y += at[d] * c->y[d];
        see(user, y, one_result(p, at, p->y[y]));
        int d = c->nspatial + 2;
        while (d >= 0 && ++at[d] == extent[d])
            at[d--] = 0;
        if (d < 0)
            return;
    }
}

#endif
