/* Random pipelines in state planned, as text: chains of products on meshes of their own, any shardings at the borders,
 * microbatches with a short last one, values that skip stages, inputs that several stages read, values that are slots
 * and outputs. */
#ifndef AP_TESTS_PASSES_RANDOM_PIPELINE_H
#define AP_TESTS_PASSES_RANDOM_PIPELINE_H

#include "tests/passes/plan_util.h"

#include "ir/pipeline.h"
#include "passes/pipe/schedule.h"

enum { MAX_STAGES = 4, MAX_CHAIN_AXES = 2 };

typedef struct chain {
    ap_ctx *ctx;
    uint64_t *state;
    int nstages, microbatches;                        /* 0: no time */
    int rows, batch, features;                        /* rows of a microbatch; of all, short at the end */
    int naxes, size[MAX_CHAIN_AXES], ranks, physical; /* of the stage in progress */
    bool skipped[MAX_STAGES][MAX_STAGES];             /* [to][from]: also sent there */
    bool output[MAX_STAGES];                          /* its value is an output beside */
    int next_rank;
    ap_text text, links;
} chain;

enum { WHOLE, BATCH, IN, OUT, NLETTERS }; /* what an axis splits: nothing, rows, what is summed, columns */

/* Names of the axes with that letter, joined. */
static inline int put_axes(const chain *c, ap_text *t, const int *letter, int which, const char *glue, const char *join)
{
    int n = 0;
    for (int a = 0; a < c->naxes; a++)
        if (letter[a] == which)
            ap_text_addf(t, "%s%c", n++ ? join : glue, "xy"[a]);
    return n;
}

/* "f32[10^12,6^8] @m[mb*x,y]" of an activation whose columns are split by the axes with letter `column`. */
static inline const char *type_of(const chain *c, const int *letter, int column)
{
    ap_text t;
    ap_text_init(&t, &c->ctx->arena);
    int padded = c->rows * (c->microbatches ? c->microbatches : 1);
    ap_text_addf(&t, c->batch == padded ? "f32[%d" : "f32[%d^%d", c->batch, padded);
    ap_text_addf(&t, c->features == c->physical ? ",%d" : ",%d^%d", c->features, c->physical);
    ap_text_addf(&t, "] @m[%s", c->microbatches ? "mb" : "");
    int n = put_axes(c, &t, letter, BATCH, c->microbatches ? "*" : "", "*");
    ap_text_add(&t, n || c->microbatches ? "," : "-,");
    ap_text_add(&t, put_axes(c, &t, letter, column, "", "*") ? "]" : "-]");
    if (column == OUT && put_axes(c, &t, letter, IN, " sum(", ","))
        ap_text_add(&t, ")");
    return ap_text_str(&t);
}

/* Axes on letters, with rows only where these divide. */
static inline void draw_letters(chain *c, int *letter, bool sums)
{
    int rows = c->rows;
    for (int a = 0; a < c->naxes; a++) {
        letter[a] = (int)draw(c->state, NLETTERS);
        if (letter[a] == IN && !sums)
            letter[a] = OUT;
        if (letter[a] == BATCH && rows % c->size[a])
            letter[a] = WHOLE;
        if (letter[a] == BATCH)
            rows /= c->size[a];
    }
}

static inline void put_param(chain *c, const int *letter, int index)
{
    ap_text *t = &c->text;
    const char *format = c->features == c->physical ? "%s%d" : "%s%d^%d";
    ap_text_addf(t, "param @w%d : f32[", index);
    ap_text_addf(t, format, "", c->features, c->physical);
    ap_text_addf(t, format, ",", c->features, c->physical);
    ap_text_add(t, "] @m[");
    ap_text_add(t, put_axes(c, t, letter, IN, "", "*") ? "," : "-,");
    ap_text_add(t, put_axes(c, t, letter, OUT, "", "*") ? "" : "-");
    ap_text_add(t, "] data([");
    for (int i = 0; i < c->features * c->features; i++)
        ap_text_addf(t, "%s%g", i ? "," : "", ((int)draw(c->state, 9) - 4) / 8.0);
    ap_text_add(t, "])\n");
}

static inline void draw_mesh(chain *c)
{
    static const int sizes[] = {1, 2, 2, 3, 4};
    c->naxes = 1 + (int)draw(c->state, MAX_CHAIN_AXES);
    c->ranks = 1;
    for (int a = 0; a < c->naxes; a++)
        c->ranks *= c->size[a] = sizes[draw(c->state, 5)];
    c->physical = (c->features + c->ranks - 1) / c->ranks * c->ranks;
}

static inline void put_head(chain *c, int s)
{
    ap_text_addf(&c->text, "stage @s%d {\n", s);
    if (c->microbatches)
        ap_text_addf(&c->text, "time mb=%d\n", c->microbatches);
    ap_text_add(&c->text, "mesh @m = [");
    for (int a = 0; a < c->naxes; a++)
        ap_text_addf(&c->text, "%s%c=%d", a ? ", " : "", "xy"[a], c -> size[a]);
    ap_text_addf(&c->text, "] ranks %d..%d\n", c->next_rank, c->next_rank + c->ranks - 1);
    c->next_rank += c->ranks;
}

/* A reshard of %from, if it is one. */
static inline void put_reshard(chain *c, const char *to, const char *from, const char *type, const char *was)
{
    if (strcmp(type, was) == 0)
        ap_text_addf(&c->text, "  %%%s = view %%%s {bn->bn} : %s\n", to, from, type);
    else
        ap_text_addf(&c->text, "  %%%s = reshard %%%s : %s\n", to, from, type);
}

static inline const char *any_type(chain *c)
{
    int letter[MAX_CHAIN_AXES];
    draw_letters(c, letter, false);
    return type_of(c, letter, OUT);
}

/* relu(h @ w), plus what skipped a stage or more, plus the input; sent on as slot "h_s", or the output. */
static inline void put_stage(chain *c, int s)
{
    int mul[MAX_CHAIN_AXES];
    bool last = s + 1 == c->nstages, input = s == 0 || !draw(c->state, 3);
    ap_text *t = &c->text;
    draw_mesh(c);
    draw_letters(c, mul, true);
    const char *sum = any_type(c), *out = any_type(c), *in[MAX_STAGES + 1];
    put_head(c, s);
    put_param(c, mul, s);
    ap_text_addf(t, "func @f%d(", s);
    if (input)
        ap_text_addf(t, "%%x: %s", in[MAX_STAGES] = any_type(c));
    for (int j = 0; j < s; j++)
        if (c->skipped[s][j])
            ap_text_addf(t, "%sslot %%h%d: %s", input || t->s[t->len - 1] != '(' ? ", " : "", j, in[j] = any_type(c));
    ap_text_add(t, ") -> ");
    if (last || c->output[s])
        ap_text_addf(t, "\"y%d\" %s%s", s, out, last ? "" : ", ");
    if (!last)
        ap_text_addf(t, "slot \"h%d\" %s", s, out);
    ap_text_add(t, " {\n");
    const char *first = s ? ap_name_str(c->ctx, ap_name_format(c->ctx, "h%d", s - 1)) : "x";
    put_reshard(c, "a", first, type_of(c, mul, IN), in[s ? s - 1 : MAX_STAGES]);
    ap_text_addf(t, "  %%b = contract %%a, @w%d {bk,kn->bn} : %s  loc(\"product%d\", \"MatMul\")\n", s,
                 type_of(c, mul, OUT), s);
    put_reshard(c, "c", "b", sum, type_of(c, mul, OUT));
    ap_text_addf(t, "  %%d0 = relu %%c : %s\n", sum);
    int n = 0;
    for (int j = 0; j <= MAX_STAGES; j++) {
        if (j == MAX_STAGES ? !input || s == 0 : j >= s - 1 || !c->skipped[s][j])
            continue;
        const char *more = ap_name_str(c->ctx, ap_name_format(c->ctx, "e%d", n)), *from = "x";
        if (j < MAX_STAGES)
            from = ap_name_str(c->ctx, ap_name_format(c->ctx, "h%d", j));
        put_reshard(c, more, from, sum, in[j]);
        ap_text_addf(t, "  %%d%d = add %%d%d, %%e%d : %s\n", n + 1, n, n, sum);
        n++;
    }
    put_reshard(c, "g", ap_name_str(c->ctx, ap_name_format(c->ctx, "d%d", n)), out, sum);
    ap_text_addf(t, "  ret %%g%s }\n}\n", !last && c->output[s] ? ", %g" : "");
}

static inline const char *draw_pipeline_text(chain *c)
{
    ap_text head;
    ap_text_init(&c->text, &c->ctx->arena);
    ap_text_init(&c->links, &c->ctx->arena);
    ap_text_init(&head, &c->ctx->arena);
    for (int s = 0; s < c->nstages; s++)
        for (int j = 0; j < s; j++)
            c->skipped[s][j] = j == s - 1 || !draw(c->state, 3);
    for (int s = 0; s < c->nstages; s++)
        c->output[s] = !draw(c->state, 4);
    for (int s = 0; s < c->nstages; s++)
        put_stage(c, s);
    int depth[MAX_STAGES];
    for (int s = 0; s < c->nstages; s++)
        depth[s] = 1 + (int)draw(c->state, 3);
    for (int s = 0; s < c->nstages; s++)
        for (int j = 0; j < s; j++)
            if (c->skipped[s][j])
                ap_text_addf(&c->links, "link %%h%d @s%d -> @s%d depth %d,%d\n", j, j, s, depth[j],
                             1 + (int)draw(c->state, 3));
    ap_text_addf(&head, "pipeline @p ranks %d microbatches %d\ninput \"x\" f32[%d,%d]\n", c->next_rank,
                 c->microbatches ? c->microbatches : 1, c->batch, c->features);
    for (int s = 0; s < c->nstages; s++)
        if (c->output[s] || s + 1 == c->nstages)
            ap_text_addf(&head, "output \"y%d\" f32[%d,%d]\n", s, c->batch, c->features);
    ap_text_addf(&head, "%s%s", ap_text_str(&c->text), ap_text_str(&c->links));
    return ap_text_str(&head);
}

static inline ap_pipeline *draw_pipeline(ap_ctx *ctx, uint64_t *state)
{
    chain c = {.ctx = ctx, .state = state};
    static const int rows[] = {1, 2, 3, 4, 6, 12};
    c.nstages = 1 + (int)draw(state, MAX_STAGES);
    c.microbatches = draw(state, 4) ? 1 + (int)draw(state, 4) : 0;
    c.rows = rows[draw(state, 6)];
    int all = c.rows * (c.microbatches ? c.microbatches : 1), left = all - (int)draw(state, (uint32_t)c.rows);
    c.batch = c.microbatches && left > 1 ? left : all;
    if (c.batch < 2) /* a dimension of one row has no factor */
        c.rows = c.batch = 2 * (c.microbatches ? c.microbatches : 1), c.rows = 2;
    c.features = 2 + (int)draw(state, 6);
    const char *text = draw_pipeline_text(&c);
    ap_pipeline *p = NULL;
    ap_status status = ap_pipeline_parse(ctx, "random", text, strlen(text), &p);
    if (status != AP_OK)
        print_error("%s\n", text);
    assert_ok(ctx, status);
    ap_wiring w = ap_pipeline_wiring(p, &ctx->arena);
    for (uint32_t s = 0; s < p->stages.len; s++)
        ap_vec_push(&ctx->arena, &p->lists, (ap_list){0});
    ap_schedule_forward(&w, &ctx->arena, p->lists.at);
    status = ap_pipeline_verify(p);
    if (status != AP_OK)
        print_error("%s\n", text);
    assert_ok(ctx, status);
    return p;
}

/* The input of such a pipeline: small multiples of 1/8, so that sums in any order are exact. */
static inline ap_tensor draw_input(ap_ctx *ctx, const ap_pipeline *p, uint64_t *state)
{
    ap_tensor in;
    const ap_port *x = &p->inputs.at[0];
    assert_true(ap_tensor_make(&ctx->arena, x->dtype, ap_shape_get(ctx, ap_shape_of_dims(ctx, x->rank, x->dim)), &in));
    for (int64_t i = 0; i < in.count; i++)
        in.at[i].f = ((double)draw(state, 33) - 16) / 8;
    return in;
}

#endif
