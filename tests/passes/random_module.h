/* Random modules of state normal: contracts with parameters and between values, reductions, composites, constants,
 * views; values are read again much later now and then. */
#ifndef AP_TESTS_PASSES_RANDOM_MODULE_H
#define AP_TESTS_PASSES_RANDOM_MODULE_H

#include "tests/passes/plan_util.h"

typedef struct maker {
    ap_text params, body;
    uint64_t *state;
    int nvalues, nparams;
    int dim[128][2], param[64][2];
    bool views, tied; /* may it have views, may products share a parameter? */
    bool has_view;
    int batch; /* not 0: all values have so many rows, and none mixes them */
} maker;

static inline int add_value(maker *k, int r, int c)
{
    k->dim[k->nvalues][0] = r;
    k->dim[k->nvalues][1] = c;
    return k->nvalues++;
}

static inline void make_contract(maker *k, int v)
{
    int m = k->dim[v][0], n = draw(k->state, 2) ? 4 : 8, kk = k->dim[v][1];
    for (int w = 0; k->tied && w < k->nparams; w++)
        if (k->param[w][0] == kk && draw(k->state, 2)) {
            int again = add_value(k, m, k->param[w][1]);
            ap_text_addf(&k->body, "  %%v%d = contract %%v%d, @w%d {mk,kn->mn} : f32[%d,%d]\n", again, v, w, m,
                         k->param[w][1]);
            return;
        }
    k->param[k->nparams][0] = kk;
    k->param[k->nparams][1] = n;
    ap_text_addf(&k->params, "param @w%d : f32[%d,%d] data([", k->nparams, kk, n);
    for (int i = 0; i < kk * n; i++)
        ap_text_addf(&k->params, "%s%g", i ? "," : "", ((int)draw(k->state, 9) - 4) / 4.0);
    ap_text_add(&k->params, "])\n");
    int r = add_value(k, m, n);
    ap_text_addf(&k->body, "  %%v%d = contract %%v%d, @w%d {mk,kn->mn} : f32[%d,%d]\n", r, v, k->nparams++, m, n);
}

/* A partner of the same shape, or the value itself. */
static inline int same_shape(maker *k, int v)
{
    int u = (int)draw(k->state, (uint32_t)k->nvalues);
    return k->dim[u][0] == k->dim[v][0] && k->dim[u][1] == k->dim[v][1] ? u : v;
}

static inline void make_node(maker *k)
{
    int v = draw(k->state, 3) ? k->nvalues - 1 : (int)draw(k->state, (uint32_t)k->nvalues), u = same_shape(k, v);
    int m = k->dim[v][0], n = k->dim[v][1], r;
    uint32_t what = draw(k->state, k->views ? 10 : 8);
    switch (k->batch && (what == 4 || what >= 8) ? 7 : what) {
    case 0:
    case 1:
        if (n == 1)
            break;
        make_contract(k, v);
        return;
    case 2:
        r = add_value(k, m, n);
        ap_text_addf(&k->body, "  %%v%d = %s %%v%d, %%v%d : f32[%d,%d]\n", r, draw(k->state, 2) ? "add" : "mul", v, u,
                     m, n);
        return;
    case 3:
        if (n == 1)
            break;
        r = add_value(k, m, 1);
        ap_text_addf(&k->body, "  %%v%d = reduce %s %%v%d {mn->m1} : f32[%d,1]\n", r, draw(k->state, 2) ? "sum" : "max",
                     v, m);
        int b = add_value(k, m, n);
        ap_text_addf(&k->body, "  %%v%d = sub %%v%d, %%v%d : f32[%d,%d]\n", b, v, r, m, n);
        return;
    case 4:
        if (n == 1)
            break;
        r = add_value(k, m, m);
        ap_text_addf(&k->body, "  %%v%d = contract %%v%d, %%v%d {mk,nk->mn} : f32[%d,%d]\n", r, v, u, m, m);
        return;
    case 5:
        if (n == 1)
            break;
        r = add_value(k, m, n);
        ap_text_addf(
            &k->body,
            "  %%v%d = composite norm(%%v%d) : f32[%d,%d] {\n    %%s%d = reduce sum %%v%d {mn->m1} : f32[%d,1]\n"
            "    %%d%d = sub %%v%d, %%s%d : f32[%d,%d]\n    %%e%d = relu %%d%d : f32[%d,%d]\n    yield %%e%d }\n",
            r, v, m, n, r, v, m, r, v, r, m, n, r, r, m, n, r);
        return;
    case 8:
        if (n == 1 || m == 1)
            break;
        k->has_view = true;
        r = add_value(k, n, m);
        ap_text_addf(&k->body, "  %%v%d = view %%v%d {mn->nm} : f32[%d,%d]\n", r, v, n, m);
        return;
    case 9:
        if (m != 8)
            break;
        k->has_view = true;
        r = add_value(k, 4, n);
        ap_text_addf(&k->body, "  %%v%d = slice %%v%d [%d:%d,%s] : f32[4,%d]\n", r, v, 2, 6, "-", n);
        return;
    case 6: {
        bool splat = draw(k->state, 2);
        ap_text_addf(&k->body, "  %%k%d = constant %s", k->nvalues, splat ? "splat 0.5" : "[");
        for (int i = 0; !splat && i < m * n; i++)
            ap_text_addf(&k->body, "%s%g", i ? "," : "", i % 5 / 4.0);
        ap_text_addf(&k->body, "%s : f32[%d,%d]\n", splat ? "" : "]", m, n);
        r = add_value(k, m, n);
        ap_text_addf(&k->body, "  %%v%d = mul %%v%d, %%k%d : f32[%d,%d]\n", r, v, r, m, n);
        return;
    }
    default:
        break;
    }
    r = add_value(k, m, n);
    ap_text_addf(&k->body, "  %%v%d = relu %%v%d : f32[%d,%d]\n", r, v, m, n);
}

static inline const char *make_module_with(ap_ctx *ctx, maker *options, int nnodes)
{
    maker k = *options;
    uint64_t *state = k.state;
    ap_text_init(&k.params, &ctx->arena);
    ap_text_init(&k.body, &ctx->arena);
    int nargs = 1 + (int)draw(state, 2);
    for (int i = 0; i < nargs; i++)
        add_value(&k, k.batch ? k.batch : draw(state, 2) ? 4 : 8, draw(state, 2) ? 4 : 8);
    for (int i = 0; i < nnodes; i++)
        make_node(&k);
    int out[2] = {k.nvalues - 1, nargs + (int)draw(state, (uint32_t)(k.nvalues - nargs))},
        nout = out[0] == out[1] ? 1 : 2;
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_text_addf(&t, "state normal\n%sfunc @f(", ap_text_str(&k.params));
    for (int i = 0; i < nargs; i++)
        ap_text_addf(&t, "%s%%v%d: f32[%d,%d]", i ? ", " : "", i, k.dim[i][0], k.dim[i][1]);
    ap_text_addf(&t, ") -> ");
    for (int i = 0; i < nout; i++)
        ap_text_addf(&t, "%s\"y%d\" f32[%d,%d]", i ? ", " : "", i, k.dim[out[i]][0], k.dim[out[i]][1]);
    ap_text_addf(&t, " {\n%s  ret %%v%d", ap_text_str(&k.body), out[0]);
    if (nout == 2)
        ap_text_addf(&t, ", %%v%d", out[1]);
    ap_text_add(&t, " }\n");
    *options = k;
    return ap_text_str(&t);
}

static inline const char *make_module(ap_ctx *ctx, uint64_t *state, int nnodes, bool views, bool *has_view)
{
    maker k = {.state = state, .views = views};
    const char *text = make_module_with(ctx, &k, nnodes);
    *has_view = k.has_view;
    return text;
}

#endif
