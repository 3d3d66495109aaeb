/* Matrix products: everything becomes a `contract` with letters. A broadcast batch dimension has no letter on
 * the side where its extent is 1, so a product with a shared weight is one contract without copies. */
#include "frontend/legalise.h"

#include <inttypes.h>
#include <string.h>

static const char batch_letters[] = "bhgecd";

/* numpy's rules: one-dimensional operands are a row on the left and a column on the right. */
ap_value ap_emit_matmul(ap_legal *l, ap_value a, ap_value b, bool trans_a, bool trans_b)
{
    ap_dims da = ap_dims_of(l, a), db = ap_dims_of(l, b);
    if (l->status)
        return AP_NONE;
    if (da.rank == 0 || db.rank == 0) {
        ap_refuse(l, "an operand of a matrix product has no dimensions");
        return AP_NONE;
    }
    int na = da.rank > 2 ? da.rank - 2 : 0, nb = db.rank > 2 ? db.rank - 2 : 0, n = na > nb ? na : nb;
    char la[AP_MAX_RANK + 1] = {0}, lb[AP_MAX_RANK + 1] = {0}, lr[AP_MAX_RANK + 1] = {0};
    memcpy(la, batch_letters + (n - na), (size_t)na);
    memcpy(lb, batch_letters + (n - nb), (size_t)nb);
    memcpy(lr, batch_letters, (size_t)n);
    trans_a = trans_a && da.rank > 1;
    trans_b = trans_b && db.rank > 1;
    memcpy(la + na, da.rank == 1 ? "k" : trans_a ? "km" : "mk", da.rank == 1 ? 1 : 2);
    memcpy(lb + nb, db.rank == 1 ? "k" : trans_b ? "nk" : "kn", db.rank == 1 ? 1 : 2);
    if (da.rank > 1)
        lr[n++] = 'm';
    if (db.rank > 1)
        lr[n++] = 'n';
    for (int i = 0; i < da.rank; i++) {
        const char *p = memchr(lb, la[i], (size_t)db.rank);
        int64_t x = da.at[i], y = p ? db.at[p - lb] : x;
        if (x != y && (la[i] == 'k' || (x != 1 && y != 1))) {
            ap_refuse(l, "%s dimensions differ: %" PRId64 " and %" PRId64, la[i] == 'k' ? "inner" : "batch", x, y);
            return AP_NONE;
        }
    }
    return ap_emit_contract(l, a, b, la, lb, lr);
}

void ap_lower_matmul(ap_legal *l)
{
    ap_value a = ap_in(l, 0), b = ap_in(l, 1);
    ap_set_out(l, 0, ap_emit_matmul(l, a, b, false, false));
}

static ap_value scaled(ap_legal *l, ap_value x, double factor)
{
    if (factor == 1 || l->status)
        return x;
    return ap_emit2(l, AP_OP_MUL, x, ap_emit_number(l, ap_dtype_of(l, x), factor));
}

/* [m,b...,k] -> [b...,m,k] */
static ap_value batch_first(ap_legal *l, ap_value x)
{
    ap_dims s = ap_dims_of(l, x);
    int perm[AP_MAX_RANK];
    for (int i = 0; i < s.rank; i++)
        perm[i] = i < s.rank - 2 ? i + 1 : i == s.rank - 2 ? 0 : i;
    return l->status || s.rank < 3 ? x : ap_emit_transpose(l, x, perm);
}

void ap_lower_fused_matmul(ap_legal *l)
{
    ap_value a = ap_in(l, 0), b = ap_in(l, 1);
    if (ap_attr_int(l, "transBatchA", 0))
        a = batch_first(l, a);
    if (ap_attr_int(l, "transBatchB", 0))
        b = batch_first(l, b);
    ap_value v = ap_emit_matmul(l, a, b, ap_attr_int(l, "transA", 0), ap_attr_int(l, "transB", 0));
    ap_set_out(l, 0, scaled(l, v, ap_attr_float(l, "alpha", 1)));
}

void ap_lower_gemm(ap_legal *l)
{
    ap_value a = ap_in(l, 0), b = ap_in(l, 1), c = ap_in(l, 2);
    ap_dims da = ap_dims_of(l, a), db = ap_dims_of(l, b), dc = ap_dims_of(l, c);
    if (!l->status && (da.rank != 2 || db.rank != 2)) {
        ap_refuse(l, "the factors must be matrices, not %s and %s", ap_dims_str(l, &da), ap_dims_str(l, &db));
        return;
    }
    ap_value v = ap_emit_matmul(l, a, b, ap_attr_int(l, "transA", 0), ap_attr_int(l, "transB", 0));
    v = scaled(l, v, ap_attr_float(l, "alpha", 1));
    double beta = ap_attr_float(l, "beta", 1);
    if (c != AP_NONE && beta != 0 && !l->status) {
        ap_dims d = ap_dims_of(l, v), r = ap_dims_broadcast(l, &d, &dc);
        if (!l->status && !ap_dims_equal(&d, &r))
            ap_refuse(l, "operand C %s does not broadcast to %s", ap_dims_str(l, &dc), ap_dims_str(l, &d));
        v = ap_emit2(l, AP_OP_ADD, v, scaled(l, c, beta));
    }
    ap_set_out(l, 0, v);
}

/* ---- Einsum ---- */

typedef struct equation {
    int n; /* operands */
    ap_value value[16];
    char operand[16][AP_MAX_RANK + 1];
    char result[AP_MAX_RANK + 1];
} equation;

/* Letters for the dimensions behind `...`, counted from the right so that they broadcast; none of them may
 * be in the equation. */
static const char *ellipsis_letters(const char *text, char out[AP_MAX_RANK])
{
    int n = 0;
    for (char c = 'A'; c <= 'z' && n < AP_MAX_RANK; c = c == 'Z' ? 'a' : (char)(c + 1))
        if (!strchr(text, c))
            out[n++] = c;
    return n == AP_MAX_RANK ? out : NULL;
}

/* One term: "b...k" with `rank` dimensions, -1 for the result, whose ellipsis has `*dots` dimensions. */
static bool parse_term(const char *s, size_t n, int rank, const char *letters, int *dots, char *out)
{
    int len = 0, plain = 0;
    for (size_t i = 0; i < n; i++)
        plain += s[i] != '.' && s[i] != ' ';
    for (size_t i = 0; i < n; i++) {
        if (s[i] == ' ')
            continue;
        if (s[i] == '.') {
            if (i + 2 >= n || s[i + 1] != '.' || s[i + 2] != '.')
                return false;
            i += 2;
            int k = rank >= 0 ? rank - plain : *dots;
            if (k < 0 || len + k > AP_MAX_RANK)
                return false;
            for (int d = k; d > 0; d--)
                out[len++] = letters[d - 1];
            *dots = k > *dots ? k : *dots;
            continue;
        }
        bool letter = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z');
        if (!letter || len == AP_MAX_RANK || (rank < 0 && memchr(out, s[i], (size_t)len)))
            return false;
        out[len++] = s[i];
    }
    out[len] = 0;
    return rank < 0 || len == rank;
}

/* Without `->` the result is the ellipsis and then, in order, the letters that occur once. */
static void implicit_result(equation *e, const char *letters, int dots)
{
    int len = 0;
    for (int d = dots; d > 0; d--)
        e->result[len++] = letters[d - 1];
    for (int letter = 'A'; letter <= 'z'; letter = letter == 'Z' ? 'a' : letter + 1) {
        char c = (char)letter;
        int times = 0;
        for (int i = 0; i < e->n; i++)
            for (const char *o = e->operand[i]; *o; o++)
                times += *o == c;
        if (times == 1 && !memchr(letters, c, AP_MAX_RANK) && len < AP_MAX_RANK)
            e->result[len++] = c;
    }
    e->result[len] = 0;
}

static bool parse_equation(ap_legal *l, const char *text, equation *e)
{
    char buf[AP_MAX_RANK];
    const char *letters = ellipsis_letters(text, buf), *arrow = strstr(text, "->");
    size_t end = arrow ? (size_t)(arrow - text) : strlen(text);
    int dots = 0;
    e->n = (int)l->node->nin;
    if (!letters || e->n > 16)
        return false;
    const char *p = text;
    for (int i = 0; i < e->n; i++) {
        size_t n = 0;
        while (p + n < text + end && p[n] != ',')
            n++;
        bool last = p + n == text + end;
        if (last != (i == e->n - 1) ||
            !parse_term(p, n, ap_dims_of(l, ap_in(l, (uint32_t)i)).rank, letters, &dots, e->operand[i]))
            return false;
        p += n + 1;
    }
    if (arrow)
        return parse_term(arrow + 2, strlen(arrow + 2), -1, letters, &dots, e->result);
    implicit_result(e, letters, dots);
    return true;
}

/* Extents of one letter agree, or are 1. */
static void check_letters(ap_legal *l, const equation *e)
{
    int64_t extent[128];
    memset(extent, -1, sizeof extent); /* not seen */
    for (int i = 0; i < e->n && !l->status; i++) {
        ap_dims d = ap_dims_of(l, ap_in(l, (uint32_t)i));
        for (int k = 0; k < d.rank; k++) {
            int64_t *x = &extent[(int)e->operand[i][k]];
            if (*x != -1 && *x != 1 && d.at[k] != 1 && *x != d.at[k])
                ap_refuse(l, "letter %c has extents %" PRId64 " and %" PRId64, e->operand[i][k], *x, d.at[k]);
            if (*x == -1 || *x == 1)
                *x = d.at[k];
        }
    }
    for (const char *c = e->result; *c; c++)
        if (extent[(int)*c] == -1)
            ap_refuse(l, "letter %c of the result is in no operand", *c);
}

static char unused_letter(const char *letters)
{
    char c = 'a';
    while (strchr(letters, c))
        c++;
    return c;
}

/* A letter that occurs twice in one operand stands for the diagonal: x[.., i, .., i, ..] is gathered at the index i. */
static void take_diagonals(ap_legal *l, equation *e)
{
    for (int i = 0; i < e->n; i++) {
        char *letters = e->operand[i];
        for (int q = 1; letters[q] && !l->status; q++) {
            const char *first = memchr(letters, letters[q], (size_t)q);
            ap_dims d = ap_dims_of(l, e->value[i]), r = {0}, line = {1, {d.at[q]}};
            if (!first)
                continue;
            char c[2] = {letters[q], 0}, data[AP_MAX_RANK + 1];
            if (d.at[first - letters] != d.at[q])
                ap_refuse(l, "letter %s has extents %" PRId64 " and %" PRId64 " in one operand", c,
                          d.at[first - letters], d.at[q]);
            strcpy(data, letters);
            data[q] = unused_letter(letters); /* the indexed one */
            memmove(letters + q, letters + q + 1, strlen(letters + q));
            for (int k = 0; k < d.rank; k++)
                if (k != q)
                    r.at[r.rank++] = d.at[k];
            if (ap_dims_count(&d) == 0 || d.at[q] == 1)
                e->value[i] = ap_emit_reshape(l, e->value[i], &r);
            else
                e->value[i] =
                    ap_emit_gather_letters(l, e->value[i], ap_emit_iota(l, AP_I64, &line, 0), data, c, letters);
            q--;
        }
    }
}

/* Letters of a product of operands 0..i that later operands or the result still need. */
static void letters_needed(const equation *e, int i, const char *have, char *out)
{
    int len = 0;
    const char *both[2] = {have, e->operand[i]};
    for (int side = 0; side < 2; side++)
        for (const char *c = both[side]; *c; c++) {
            bool need = strchr(e->result, *c) != NULL;
            for (int k = i + 1; k < e->n; k++)
                need = need || strchr(e->operand[k], *c);
            if (need && !memchr(out, *c, (size_t)len) && len < AP_MAX_RANK)
                out[len++] = *c;
        }
    out[len] = 0;
}

static ap_value single_operand(ap_legal *l, const equation *e)
{
    ap_value x = e->value[0];
    char left[AP_MAX_RANK + 1] = {0};
    uint32_t axes = 0;
    int perm[AP_MAX_RANK], n = 0;
    for (int i = 0; e->operand[0][i]; i++) {
        if (strchr(e->result, e->operand[0][i]))
            left[n++] = e->operand[0][i];
        else
            axes |= 1u << i;
    }
    if (axes)
        x = ap_emit_reduce(l, AP_REDUCE_SUM, x, axes, false);
    for (int i = 0; e->result[i]; i++)
        perm[i] = (int)(strchr(left, e->result[i]) - left);
    return l->status ? AP_NONE : ap_emit_transpose(l, x, perm);
}

void ap_lower_einsum(ap_legal *l)
{
    const char *text = ap_attr_str(l, "equation", "");
    equation e = {0};
    if (!l->status && !parse_equation(l, text, &e))
        ap_refuse(l, "the equation \"%.200s\" is not understood for these operands", text);
    if (!l->status)
        check_letters(l, &e);
    for (int i = 0; i < e.n; i++)
        e.value[i] = ap_in(l, (uint32_t)i);
    take_diagonals(l, &e);
    if (l->status)
        return;
    if (e.n == 1) {
        ap_set_out(l, 0, single_operand(l, &e));
        return;
    }
    ap_value v = e.value[0];
    char have[AP_MAX_RANK + 1], next[AP_MAX_RANK + 1] = {0};
    strcpy(have, e.operand[0]);
    for (int i = 1; i < e.n && !l->status; i++) {
        if (i == e.n - 1)
            strcpy(next, e.result);
        else
            letters_needed(&e, i, have, next);
        v = ap_emit_contract(l, v, e.value[i], have, e.operand[i], next);
        strcpy(have, next);
    }
    ap_set_out(l, 0, v);
}
