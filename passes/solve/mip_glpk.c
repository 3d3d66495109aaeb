/* A kernel as a mixed integer program for GLPK, in the local-polytope form: one binary per strategy, and per edge
 * one continuous variable for every pair of a class of equal rows and a class of equal columns (there are few
 * layouts, so few classes). Row and column sums tie the pairs to the strategies:
 *
 *     sum over i: x[v,i] = 1        sum over B: y[A,B] = sum over i in A: x[u,i]       and the same for columns
 *
 * Doubles are kept away from proofs: costs are shifted by exact integers so that all are >= 0, scaled when large,
 * and a bound is lowered by what GLPK's tolerances may hide before it is rounded up to an integer. What GLPK calls a
 * solution counts only after evaluation in integers; a choice that it takes although a row is exceeded by less than
 * its tolerance is cut off by a cover. */
#include "passes/solve/mip.h"

#include <glpk.h>
#include <math.h>
#include <setjmp.h>
#include <string.h>

#define LARGEST_COEFFICIENT 1e7
#define ROWS_PER_ROUND 50
#define MIR_COLUMNS 600
#define GLPK_SHARE 0.8e3 /* milliseconds per second left: GLPK overshoots its limit */

typedef struct edge_classes {
    uint32_t nrow, ncol;
    uint32_t *row, *col; /* class of a strategy of u, of v */
    uint32_t *var;       /* [class of u][class of v]: column of GLPK; 0: forbidden */
} edge_classes;

typedef struct model {
    ap_arena *arena;
    const ap_kernel *k;
    ap_effort *effort;
    glp_prob *lp;
    jmp_buf on_error;
    uint32_t *first; /* node -> column of its strategy 0 */
    edge_classes *edge;
    int ncols;
    int64_t shift; /* cost = shift + unit * objective */
    double unit, scale;
    bool *stated;          /* per memory row */
    const uint32_t *start; /* to be offered once */
    int64_t cutoff;
    double bound; /* of the tree, in objective units; -inf: none */
    bool broken;  /* a coefficient was not finite */
    uint32_t *choice, *found_choice;
    int64_t *use;
    bool found;
    int64_t found_cost;
    int steps;  /* of the simplex method, charged so far */
    int *index; /* of the row in hand, from 1 */
    double *value, *sum;
} model;

static void on_glpk_error(void *info)
{
    longjmp(*(jmp_buf *)info, 1);
}

static int on_glpk_text(void *info, const char *s)
{
    (void)info;
    (void)s;
    return 1; /* swallowed */
}

/* ---- classes ---- */

static bool same_line(const ap_kernel *k, uint32_t e, uint32_t a, uint32_t b, bool rows)
{
    const ap_problem_edge *x = &k->p.edge[e];
    size_t nv = k->p.nstrategies[x->v], other = rows ? nv : k->p.nstrategies[x->u];
    for (size_t j = 0; j < other; j++) {
        size_t p = rows ? a * nv + j : j * nv + a, q = rows ? b * nv + j : j * nv + b;
        if (x->cost[p] != x->cost[q])
            return false;
    }
    for (uint32_t d = 0; d < k->p.npair_demands; d++) {
        if (k->p.pair_demand[d].edge != e)
            continue;
        const int64_t *u = k->p.pair_demand[d].usage;
        for (size_t j = 0; j < other; j++)
            if (u[rows ? a * nv + j : j * nv + a] != u[rows ? b * nv + j : j * nv + b])
                return false;
    }
    return true;
}

static uint32_t find_classes(ap_arena *arena, const ap_kernel *k, uint32_t e, bool rows, uint32_t **out)
{
    uint32_t n = k->p.nstrategies[rows ? k->p.edge[e].u : k->p.edge[e].v], count = 0;
    uint32_t *class_of = AP_NEW_ARRAY(arena, uint32_t, n), *first = AP_NEW_ARRAY(arena, uint32_t, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = 0;
        while (c < count && !same_line(k, e, first[c], i, rows))
            c++;
        if (c == count)
            first[count++] = i;
        class_of[i] = c;
    }
    *out = class_of;
    return count;
}

uint64_t ap_mip_size(ap_arena *scratch, const ap_kernel *k, uint64_t most)
{
    uint64_t n = 0;
    uint32_t *unused;
    for (uint32_t v = 0; v < k->p.nnodes; v++)
        n += k->p.nstrategies[v];
    for (uint32_t e = 0; e < k->p.nedges && n <= most; e++)
        n += (uint64_t)find_classes(scratch, k, e, true, &unused) * find_classes(scratch, k, e, false, &unused);
    return n;
}

/* ---- building ---- */

static int64_t least_of(const int64_t *c, size_t n)
{
    int64_t least = AP_FORBIDDEN;
    for (size_t i = 0; i < n; i++)
        least = ap_min_i64(least, c[i]);
    return least == AP_FORBIDDEN ? 0 : least;
}

static size_t edge_size(const ap_kernel *k, uint32_t e)
{
    return (size_t)k->p.nstrategies[k->p.edge[e].u] * k->p.nstrategies[k->p.edge[e].v];
}

/* The shift, and the unit that keeps coefficients below LARGEST_COEFFICIENT. A coefficient that by itself reaches
 * the cutoff is as good as forbidden, so it does not count. */
static void choose_units(model *m)
{
    const ap_problem *p = &m->k->p;
    m->shift = 0;
    for (uint32_t v = 0; v < p->nnodes; v++)
        m->shift += least_of(p->cost[v], p->nstrategies[v]);
    for (uint32_t e = 0; e < p->nedges; e++)
        m->shift += least_of(p->edge[e].cost, edge_size(m->k, e));
    int64_t room = m->cutoff == INT64_MAX ? INT64_MAX : m->cutoff - m->shift, most = 1;
    for (uint32_t v = 0; v < p->nnodes + p->nedges; v++) {
        const int64_t *c = v < p->nnodes ? p->cost[v] : p->edge[v - p->nnodes].cost;
        size_t n = v < p->nnodes ? p->nstrategies[v] : edge_size(m->k, v - p->nnodes);
        int64_t least = least_of(c, n);
        for (size_t i = 0; i < n; i++)
            if (c[i] != AP_FORBIDDEN && c[i] - least <= room)
                most = ap_max_i64(most, c[i] - least);
    }
    m->unit = (double)most <= LARGEST_COEFFICIENT ? 1 : (double)most / LARGEST_COEFFICIENT;
    m->scale = 1;
    for (uint32_t r = 0; r < m->k->nrows; r++)
        m->scale = fmax(m->scale, (double)m->k->rhs[r]);
}

/* A column with cost c above the least of its group; forbidden ones are fixed at zero. */
static void set_column(model *m, int col, int64_t c, int64_t least, bool binary)
{
    bool gone = c == AP_FORBIDDEN || (m->cutoff != INT64_MAX && c - least > m->cutoff - m->shift);
    double obj = gone ? 0 : (double)(c - least) / m->unit;
    m->broken |= !isfinite(obj);
    glp_set_obj_coef(m->lp, col, obj);
    if (binary)
        glp_set_col_kind(m->lp, col, GLP_BV);
    if (gone)
        glp_set_col_bnds(m->lp, col, GLP_FX, 0, 0);
    else if (!binary)
        glp_set_col_bnds(m->lp, col, GLP_LO, 0, 0);
}

static void add_strategies(model *m)
{
    const ap_problem *p = &m->k->p;
    for (uint32_t v = 0; v < p->nnodes; v++) {
        int n = (int)p->nstrategies[v], col = glp_add_cols(m->lp, n), row = glp_add_rows(m->lp, 1);
        int64_t least = least_of(p->cost[v], p->nstrategies[v]);
        m->first[v] = (uint32_t)col;
        for (int i = 0; i < n; i++) {
            set_column(m, col + i, p->cost[v][i], least, true);
            m->index[i + 1] = col + i;
            m->value[i + 1] = 1;
        }
        glp_set_mat_row(m->lp, row, n, m->index, m->value);
        glp_set_row_bnds(m->lp, row, GLP_FX, 1, 1);
    }
}

/* sum of the pairs of class c = sum of the strategies in class c. */
static void tie(model *m, uint32_t e, uint32_t c, bool rows)
{
    const ap_problem_edge *x = &m->k->p.edge[e];
    const edge_classes *q = &m->edge[e];
    uint32_t v = rows ? x->u : x->v;
    const uint32_t *class_of = rows ? q->row : q->col;
    int n = 0;
    for (uint32_t o = 0; o < (rows ? q->ncol : q->nrow); o++) {
        uint32_t var = rows ? q->var[c * q->ncol + o] : q->var[o * q->ncol + c];
        if (var != 0) {
            m->index[++n] = (int)var;
            m->value[n] = 1;
        }
    }
    for (uint32_t i = 0; i < m->k->p.nstrategies[v]; i++) {
        if (class_of[i] == c) {
            m->index[++n] = (int)(m->first[v] + i);
            m->value[n] = -1;
        }
    }
    int row = glp_add_rows(m->lp, 1);
    glp_set_mat_row(m->lp, row, n, m->index, m->value);
    glp_set_row_bnds(m->lp, row, GLP_FX, 0, 0);
}

static void add_edge(model *m, uint32_t e)
{
    const ap_problem_edge *x = &m->k->p.edge[e];
    edge_classes *q = &m->edge[e];
    uint32_t nu = m->k->p.nstrategies[x->u], nv = m->k->p.nstrategies[x->v];
    int64_t least = least_of(x->cost, (size_t)nu * nv);
    q->nrow = find_classes(m->arena, m->k, e, true, &q->row);
    q->ncol = find_classes(m->arena, m->k, e, false, &q->col);
    q->var = AP_NEW_ARRAY(m->arena, uint32_t, (size_t)q->nrow * q->ncol);
    for (uint32_t i = 0; i < nu; i++)
        for (uint32_t j = 0; j < nv; j++) {
            int64_t c = x->cost[(size_t)i * nv + j];
            uint32_t *var = &q->var[(size_t)q->row[i] * q->ncol + q->col[j]];
            if (c == AP_FORBIDDEN || *var != 0)
                continue;
            *var = (uint32_t)glp_add_cols(m->lp, 1);
            set_column(m, (int)*var, c, least, false);
        }
    for (uint32_t c = 0; c < q->nrow; c++)
        tie(m, e, c, true);
    for (uint32_t c = 0; c < q->ncol; c++)
        tie(m, e, c, false);
}

/* ---- memory rows ---- */

static int row_terms(model *m, uint32_t r)
{
    const ap_problem *p = &m->k->p;
    double *sum = m->sum;
    memset(sum, 0, ((size_t)m->ncols + 1) * sizeof *sum);
    for (uint32_t d = 0; d < p->ndemands; d++) {
        const ap_demand *x = &p->demand[d];
        for (uint32_t i = 0; x->lo <= r && r < x->hi && i < p->nstrategies[x->node]; i++)
            sum[m->first[x->node] + i] += (double)x->usage[i];
    }
    for (uint32_t d = 0; d < p->npair_demands; d++) {
        const ap_pair_demand *x = &p->pair_demand[d];
        if (r < x->lo || r >= x->hi)
            continue;
        const edge_classes *q = &m->edge[x->edge];
        const ap_problem_edge *e = &p->edge[x->edge];
        bool *seen = AP_NEW_ARRAY(m->arena, bool, (size_t)q->nrow * q->ncol);
        for (uint32_t i = 0; i < p->nstrategies[e->u]; i++)
            for (uint32_t j = 0; j < p->nstrategies[e->v]; j++) {
                size_t at = (size_t)q->row[i] * q->ncol + q->col[j];
                if (q->var[at] != 0 && !seen[at])
                    sum[q->var[at]] += (double)x->usage[(size_t)i * p->nstrategies[e->v] + j];
                seen[at] = true;
            }
    }
    int n = 0;
    for (int c = 1; c <= m->ncols; c++) {
        if (sum[c] != 0) {
            m->index[++n] = c;
            m->value[n] = sum[c] / m->scale;
            m->broken |= !isfinite(m->value[n]);
        }
    }
    return n;
}

static void state_row(model *m, glp_prob *lp, uint32_t r)
{
    int n = row_terms(m, r), row = glp_add_rows(lp, 1);
    glp_set_mat_row(lp, row, n, m->index, m->value);
    glp_set_row_bnds(lp, row, GLP_UP, 0, (double)m->k->rhs[r] / m->scale);
    m->stated[r] = true;
}

/* Not all of the choices that hold memory in row r at once. */
static void state_cover(model *m, glp_prob *lp, uint32_t r)
{
    const ap_problem *p = &m->k->p;
    bool *in = AP_NEW_ARRAY(m->arena, bool, p->nnodes);
    for (uint32_t d = 0; d < p->ndemands; d++) {
        const ap_demand *x = &p->demand[d];
        if (x->lo <= r && r < x->hi && x->usage[m->choice[x->node]] > 0)
            in[x->node] = true;
    }
    for (uint32_t d = 0; d < p->npair_demands; d++) {
        const ap_pair_demand *x = &p->pair_demand[d];
        const ap_problem_edge *e = &p->edge[x->edge];
        size_t at = (size_t)m->choice[e->u] * p->nstrategies[e->v] + m->choice[e->v];
        if (x->lo <= r && r < x->hi && x->usage[at] > 0)
            in[e->u] = in[e->v] = true;
    }
    int n = 0;
    for (uint32_t v = 0; v < p->nnodes; v++) {
        if (in[v]) {
            m->index[++n] = (int)(m->first[v] + m->choice[v]);
            m->value[n] = 1;
        }
    }
    int row = glp_add_rows(lp, 1);
    glp_set_mat_row(lp, row, n, m->index, m->value);
    glp_set_row_bnds(lp, row, GLP_UP, 0, n - 1);
}

static double row_use(const model *m, glp_prob *lp, uint32_t r)
{
    const ap_problem *p = &m->k->p;
    double sum = 0;
    for (uint32_t d = 0; d < p->ndemands; d++) {
        const ap_demand *x = &p->demand[d];
        for (uint32_t i = 0; x->lo <= r && r < x->hi && i < p->nstrategies[x->node]; i++)
            sum += (double)x->usage[i] * glp_get_col_prim(lp, (int)(m->first[x->node] + i));
    }
    return sum; /* pairs would only add */
}

/* Reads a choice off the LP's point; true when it is integral. */
static bool read_choice(model *m, glp_prob *lp, bool mip)
{
    bool integral = true;
    for (uint32_t v = 0; v < m->k->p.nnodes; v++) {
        double most = -1;
        for (uint32_t i = 0; i < m->k->p.nstrategies[v]; i++) {
            int col = (int)(m->first[v] + i);
            double x = mip ? glp_mip_col_val(lp, col) : glp_get_col_prim(lp, col);
            if (x > most) {
                most = x;
                m->choice[v] = i;
            }
        }
        integral &= most > 1 - 2e-5;
    }
    return integral;
}

static void keep_choice(model *m)
{
    int64_t cost;
    if (!ap_kernel_cost(m->k, m->choice, &cost) || (m->found && cost >= m->found_cost))
        return;
    ap_kernel_usage(m->k, m->choice, m->use);
    if (!ap_kernel_fits(m->k, m->use))
        return;
    m->found = true;
    m->found_cost = cost;
    memcpy(m->found_choice, m->choice, m->k->p.nnodes * sizeof *m->choice);
}

/* Adds what the LP's point violates; returns how many rows. */
static int separate(model *m, glp_prob *lp)
{
    int added = 0;
    bool integral = read_choice(m, lp, false);
    if (integral) {
        keep_choice(m);
        ap_kernel_usage(m->k, m->choice, m->use);
    }
    for (uint32_t r = 0; r < m->k->nrows && added < ROWS_PER_ROUND; r++) {
        bool exceeded = integral && m->use[r] > m->k->rhs[r];
        if (!m->stated[r]) {
            double rhs = (double)m->k->rhs[r];
            if (exceeded || row_use(m, lp, r) > rhs + 1e-6 * m->scale) {
                state_row(m, lp, r);
                added++;
            }
        } else if (exceeded) { /* within the LP's tolerance, but not in bytes */
            state_cover(m, lp, r);
            added++;
        }
    }
    return added;
}

/* ---- search ---- */

static void offer_start(model *m, glp_tree *tree)
{
    if (!m->start)
        return;
    double *x = AP_NEW_ARRAY(m->arena, double, m->ncols + 1);
    for (uint32_t v = 0; v < m->k->p.nnodes; v++)
        x[m->first[v] + m->start[v]] = 1;
    for (uint32_t e = 0; e < m->k->p.nedges; e++) {
        const edge_classes *q = &m->edge[e];
        const ap_problem_edge *y = &m->k->p.edge[e];
        x[q->var[(size_t)q->row[m->start[y->u]] * q->ncol + q->col[m->start[y->v]]]] = 1;
    }
    glp_ios_heur_sol(tree, x);
    m->start = NULL;
}

/* What one simplex step costs, in units of work. */
static int64_t step_work(glp_prob *lp)
{
    return 1 + (glp_get_num_rows(lp) + glp_get_num_nz(lp)) / 500;
}

/* GLPK does not tell when it is in the middle of its cuts or of an LP, so the price is taken afterwards. */
static void charge_steps(model *m, glp_prob *lp)
{
    int now = glp_get_it_cnt(lp);
    if (now > m->steps)
        ap_effort_charge(m->effort, (uint64_t)(now - m->steps) * (uint64_t)step_work(lp));
    m->steps = now;
}

static void on_tree(glp_tree *tree, void *info)
{
    model *m = info;
    glp_prob *lp = glp_ios_get_prob(tree);
    int node = glp_ios_best_node(tree);
    if (node != 0)
        m->bound = glp_ios_node_bound(tree, node);
    charge_steps(m, lp);
    if (glp_ios_reason(tree) == GLP_ICUTGEN)
        ap_effort_charge(m->effort, (uint64_t)glp_get_num_nz(lp));
    if (ap_effort_spent(m->effort))
        glp_ios_terminate(tree);
    else if (glp_ios_reason(tree) == GLP_IROWGEN)
        separate(m, lp);
    else if (glp_ios_reason(tree) == GLP_IHEUR)
        offer_start(m, tree);
}

static int clamp_int(double x)
{
    return x < 1 ? 1 : x > INT32_MAX ? INT32_MAX : (int)x;
}

/* The root LP with rows added until none is violated. */
static int solve_root(model *m)
{
    glp_smcp par;
    glp_init_smcp(&par);
    par.msg_lev = GLP_MSG_OFF;
    par.meth = GLP_DUALP;
    for (;;) {
        int64_t step = step_work(m->lp);
        if (ap_effort_spent(m->effort))
            return GLP_EITLIM;
        par.tm_lim = clamp_int(GLPK_SHARE * ap_effort_left(m->effort));
        int64_t iterations = m->effort->work / step;
        if (m->effort->work != INT64_MAX)
            par.it_lim = clamp_int((double)iterations);
        int rc = glp_simplex(m->lp, &par);
        charge_steps(m, m->lp);
        if (rc != 0 || glp_get_status(m->lp) != GLP_OPT)
            return rc;
        if (separate(m, m->lp) == 0)
            return 0;
    }
}

/* Objective -> a bound on costs: tolerances on reduced costs (per unit of the variables, of which about one per node
 * and edge is used) and on the objective may hide this much. */
static int64_t safe_bound(const model *m, double objective)
{
    if (!isfinite(objective) || objective < 0)
        return m->shift; /* all coefficients are >= 0 */
    double used = (double)m->k->p.nnodes + m->k->p.nedges;
    double slack = 1e-6 * used + 1e-8 * objective + 1e-3;
    double b = ceil((objective - slack) * m->unit);
    return m->shift + (b <= 0 ? 0 : (int64_t)b);
}

/* A row that keeps the objective below the cutoff, when no start does. */
static void state_cutoff(model *m)
{
    int n = 0;
    for (int c = 1; c <= m->ncols; c++) {
        double obj = glp_get_obj_coef(m->lp, c);
        if (obj != 0) {
            m->index[++n] = c;
            m->value[n] = obj / LARGEST_COEFFICIENT;
        }
    }
    double limit = (double)(m->cutoff - m->shift) / m->unit / LARGEST_COEFFICIENT;
    int row = glp_add_rows(m->lp, 1);
    glp_set_mat_row(m->lp, row, n, m->index, m->value);
    glp_set_row_bnds(m->lp, row, GLP_UP, 0, limit);
}

static void build(model *m, const bool *early)
{
    const ap_problem *p = &m->k->p;
    size_t most = 1;
    for (uint32_t v = 0; v < p->nnodes; v++)
        most += p->nstrategies[v];
    for (uint32_t e = 0; e < p->nedges; e++)
        most += edge_size(m->k, e);
    m->index = AP_NEW_ARRAY(m->arena, int, most + 1);
    m->value = AP_NEW_ARRAY(m->arena, double, most + 1);
    m->sum = AP_NEW_ARRAY(m->arena, double, most + 1);
    m->first = AP_NEW_ARRAY(m->arena, uint32_t, p->nnodes);
    m->edge = AP_NEW_ARRAY(m->arena, edge_classes, p->nedges);
    m->stated = AP_NEW_ARRAY(m->arena, bool, m->k->nrows);
    m->choice = AP_NEW_ARRAY(m->arena, uint32_t, p->nnodes);
    m->found_choice = AP_NEW_ARRAY(m->arena, uint32_t, p->nnodes);
    m->use = AP_NEW_ARRAY(m->arena, int64_t, m->k->nrows);
    choose_units(m);
    m->lp = glp_create_prob();
    glp_set_obj_dir(m->lp, GLP_MIN);
    add_strategies(m);
    for (uint32_t e = 0; e < p->nedges; e++)
        add_edge(m, e);
    m->ncols = glp_get_num_cols(m->lp);
    for (uint32_t r = 0; r < m->k->nrows; r++)
        if (!early || early[r])
            state_row(m, m->lp, r);
    if (m->cutoff != INT64_MAX && !m->start)
        state_cutoff(m);
}

static void search(model *m, ap_mip_result *out)
{
    int rc = solve_root(m);
    int status = glp_get_status(m->lp);
    if (rc == GLP_EITLIM || rc == GLP_ETMLIM) {
        out->state = AP_MIP_STOPPED;
        return;
    }
    if (rc != 0 || (status != GLP_OPT && status != GLP_NOFEAS)) {
        out->state = AP_MIP_FAILED;
        return;
    }
    if (status == GLP_NOFEAS) {
        out->state = AP_MIP_INFEASIBLE;
        return;
    }
    m->bound = glp_get_obj_val(m->lp);
    out->bound = safe_bound(m, m->bound);
    glp_iocp par;
    glp_init_iocp(&par);
    par.msg_lev = GLP_MSG_OFF;
    par.gmi_cuts = par.cov_cuts = par.clq_cuts = GLP_ON;
    par.mir_cuts = m->ncols <= MIR_COLUMNS ? GLP_ON : GLP_OFF; /* minutes without a callback on large ones */
    par.tol_obj = 1e-9;
    par.tm_lim = clamp_int(GLPK_SHARE * ap_effort_left(m->effort));
    par.cb_func = on_tree;
    par.cb_info = m;
    rc = glp_intopt(m->lp, &par);
    status = glp_mip_status(m->lp);
    if (status == GLP_OPT || status == GLP_FEAS) {
        read_choice(m, m->lp, true);
        keep_choice(m);
    }
    if (rc == GLP_EMIPGAP || rc == GLP_ETMLIM || rc == GLP_ESTOP) {
        out->state = AP_MIP_STOPPED;
        out->bound = ap_max_i64(out->bound, safe_bound(m, m->bound));
    } else if (rc != 0) {
        out->state = AP_MIP_FAILED;
    } else if (status == GLP_OPT) {
        out->state = AP_MIP_OPTIMAL;
        out->bound = ap_max_i64(out->bound, safe_bound(m, glp_mip_obj_val(m->lp)));
    } else {
        out->state = status == GLP_NOFEAS ? AP_MIP_INFEASIBLE : AP_MIP_FAILED;
    }
}

void ap_mip_solve(ap_arena *arena, const ap_kernel *k, ap_effort *effort, const uint32_t *start, int64_t cutoff,
                  const bool *early, ap_mip_result *out)
{
    *out = (ap_mip_result){.state = AP_MIP_FAILED, .bound = INT64_MIN};
    model *m = AP_NEW(arena, model);
    if (glp_init_env() == 2) /* no memory for it; asked for later, it would abort */
        return;
    *m = (model){.arena = arena, .k = k, .effort = effort, .start = start, .cutoff = cutoff, .bound = -INFINITY};
    if (setjmp(m->on_error) != 0) {
        glp_free_env(); /* with everything in it */
        m->lp = NULL;
        out->state = AP_MIP_FAILED;
    } else {
        glp_term_hook(on_glpk_text, NULL);
        glp_error_hook(on_glpk_error, &m->on_error);
        build(m, early);
        if (!m->broken)
            search(m, out);
        glp_delete_prob(m->lp);
        glp_error_hook(NULL, NULL);
    }
    out->found = m->found;
    out->choice = m->found_choice;
    out->cost = m->found_cost;
}

/* ---- the master of the multipliers ---- */

typedef struct master {
    glp_prob *lp;
    jmp_buf on_error;
} master;

static double largest(uint32_t ncuts, const ap_mip_cut *cut, uint32_t n, bool slopes)
{
    double most = 0;
    for (uint32_t c = 0; c < ncuts; c++) {
        if (!slopes)
            most = fmax(most, fabs(cut[c].value - cut[0].value));
        for (uint32_t i = 0; slopes && i < n; i++)
            most = fmax(most, fabs(cut[c].slope[i]));
    }
    return most > 0 ? most : 1;
}

/* Column 1 is the value, columns 2.. the multipliers; both in units of the largest numbers seen. */
static bool master_solve(master *m, ap_arena *scratch, uint32_t ncuts, const ap_mip_cut *cut, uint32_t n,
                         const double *lo, const double *hi, double *out_x, double *out_value)
{
    double cu = largest(ncuts, cut, n, false), su = largest(ncuts, cut, n, true);
    int *index = AP_NEW_ARRAY(scratch, int, n + 2);
    double *value = AP_NEW_ARRAY(scratch, double, n + 2);
    m->lp = glp_create_prob();
    glp_set_obj_dir(m->lp, GLP_MAX);
    glp_add_cols(m->lp, (int)n + 1);
    glp_set_col_bnds(m->lp, 1, GLP_FR, 0, 0);
    glp_set_obj_coef(m->lp, 1, 1);
    for (uint32_t i = 0; i < n; i++)
        glp_set_col_bnds(m->lp, (int)i + 2, lo[i] < hi[i] ? GLP_DB : GLP_FX, lo[i] * su / cu, hi[i] * su / cu);
    glp_add_rows(m->lp, (int)ncuts);
    for (uint32_t c = 0; c < ncuts; c++) {
        int len = 1;
        index[1] = 1;
        value[1] = 1;
        for (uint32_t i = 0; i < n; i++) {
            if (cut[c].slope[i] != 0) {
                index[++len] = (int)i + 2;
                value[len] = -cut[c].slope[i] / su;
            }
        }
        glp_set_mat_row(m->lp, (int)c + 1, len, index, value);
        glp_set_row_bnds(m->lp, (int)c + 1, GLP_UP, 0, (cut[c].value - cut[0].value) / cu);
    }
    glp_smcp par;
    glp_init_smcp(&par);
    par.msg_lev = GLP_MSG_OFF;
    par.it_lim = clamp_int(200 + 20.0 * ((double)ncuts + n)); /* it can cycle; then the search ends here */
    if (glp_simplex(m->lp, &par) != 0 || glp_get_status(m->lp) != GLP_OPT)
        return false;
    *out_value = glp_get_obj_val(m->lp) * cu + cut[0].value;
    for (uint32_t i = 0; i < n; i++)
        out_x[i] = fmin(fmax(glp_get_col_prim(m->lp, (int)i + 2) * cu / su, lo[i]), hi[i]);
    return true;
}

bool ap_mip_master(ap_arena *scratch, uint32_t ncuts, const ap_mip_cut *cut, uint32_t n, const double *lo,
                   const double *hi, double *out_x, double *out_value)
{
    master *m = AP_NEW(scratch, master);
    if (glp_init_env() == 2)
        return false;
    if (setjmp(m->on_error) != 0) {
        glp_free_env();
        return false;
    }
    for (uint32_t c = 0; c < ncuts; c++) {
        bool finite = isfinite(cut[c].value);
        for (uint32_t i = 0; i < n; i++)
            finite &= isfinite(cut[c].slope[i]) && isfinite(lo[i]) && isfinite(hi[i]);
        if (!finite)
            return false;
    }
    glp_term_hook(on_glpk_text, NULL);
    glp_error_hook(on_glpk_error, &m->on_error);
    bool ok = master_solve(m, scratch, ncuts, cut, n, lo, hi, out_x, out_value);
    glp_delete_prob(m->lp);
    glp_error_hook(NULL, NULL);
    return ok;
}
