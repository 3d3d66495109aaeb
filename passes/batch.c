/* The batch, found in three walks over the nodes:
 *
 *   forward    a result has the batch where the letter of the operands' batch stands; refused where that letter is
 *              reduced, looked up, or no letter at all
 *   backward   a value that does not depend on the batch, but that everybody reads one microbatch of, is computed one
 *              microbatch at a time as well, unless its numbers are parameters, which are there all the time
 *   classes    factors that share a letter anywhere have one physical extent; those of the batch's class are marked */
#include "passes/batch.h"

#include "ir/base/text.h"
#include "ir/list.h"
#include "ir/op.h"
#include "ir/physical.h"
#include "passes/cluster.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct finder {
    ap_ctx *ctx;
    const ap_module *m;
    ap_arena *arena;
    ap_batch *b;
    ap_status status;
    ap_loc loc;       /* of the composite around, for nodes without one */
    uint32_t told;    /* messages before ours */
    uint32_t *parent; /* per factor of a value: union-find over classes */
} finder;

int8_t ap_batch_letter(const ap_batch *b, const ap_module *m, ap_node n, const ap_rule *rule)
{
    const ap_node_info *node = ap_node_at(m, n);
    for (uint32_t i = 0; i < rule->nresults; i++)
        if (b->factor[node->out[i]] != AP_NO_BATCH)
            return rule->result[i][b->factor[node->out[i]]];
    return AP_RULE_NONE;
}

/* ---- forward ---- */

static const char *node_name(const finder *f, ap_node n)
{
    const ap_node_info *node = ap_node_at(f->m, n);
    const ap_op_info *op = ap_op_get(node->op);
    return op->has_body ? ap_name_str(f->ctx, node->u.composite) : op->name;
}

static void go_forward(finder *f, ap_node n);

/* One ONNX node may have become several of ours (a softmax: two reductions); one of them is enough. */
static bool is_told(const finder *f, ap_loc loc)
{
    for (uint32_t i = f->told; loc && i < f->ctx->diags.len; i++)
        if (f->ctx->diags.at[i].loc == loc)
            return true;
    return false;
}

/* Of a composite, the nodes inside that are to blame. */
static void refuse(finder *f, ap_node n, const char *why)
{
    const ap_node_info *node = ap_node_at(f->m, n);
    ap_loc loc = f->loc = node->loc ? node->loc : f->loc;
    uint32_t told = f->ctx->diags.len;
    for (uint32_t i = 0; node->body != AP_NONE && i < ap_block_at(f->m, node->body)->nodes.len; i++) {
        f->loc = loc;
        go_forward(f, ap_block_at(f->m, node->body)->nodes.at[i]);
    }
    if (f->ctx->diags.len == told && is_told(f, loc))
        return;
    if (f->ctx->diags.len == told)
        f->status = ap_error(f->ctx, loc, "no microbatches: %s %s", node_name(f, n), why);
}

/* Why a letter cannot be cut into microbatches; NULL: it can. */
static const char *fault_of_kind(ap_letter_kind kind)
{
    static const char *const fault[] = {
        [AP_LETTER_SUM] = "adds over the batch",          [AP_LETTER_MAX] = "takes the largest of the batch",
        [AP_LETTER_MIN] = "takes the least of the batch", [AP_LETTER_INDEXED] = "looks up entries of the batch",
        [AP_LETTER_WHOLE] = "needs the batch whole",      [AP_LETTER_INNER] = "reduces the batch",
    };
    return fault[kind];
}

/* Does every result have the letter, and no operand need more than to be cut? */
static bool is_carried(const ap_rule *rule, int8_t letter, int8_t *out_factor)
{
    for (uint32_t k = 0; k < rule->nresults; k++) {
        out_factor[k] = AP_NO_BATCH;
        for (int f = 0; f < rule->result_factors[k]; f++)
            if (rule->result[k][f] == letter)
                out_factor[k] = (int8_t)f;
        if (out_factor[k] == AP_NO_BATCH)
            return false;
    }
    for (uint32_t i = 0; i < rule->noperands; i++)
        if (rule->operand_partial[i][letter] != AP_RULE_NONE)
            return false;
    return true;
}

/* The letter of all operands that have a batch, NONE without; `why` says what is wrong with it. */
static int8_t letter_of_operands(const finder *f, ap_node n, const ap_rule *rule, bool *out_any, const char **why)
{
    const ap_node_info *node = ap_node_at(f->m, n);
    int8_t letter = AP_RULE_NONE;
    *out_any = false;
    *why = NULL;
    for (uint32_t i = 0; i < node->nin; i++) {
        int8_t at = f->b->factor[node->in[i]];
        if (at == AP_NO_BATCH)
            continue;
        int8_t here = i < rule->noperands ? rule->operand[i][at] : AP_RULE_NONE;
        if (here == AP_RULE_NONE)
            *why = "needs the batch whole";
        else if (*out_any && here != letter && !*why)
            *why = "brings together entries of different batches";
        letter = here;
        *out_any = true;
    }
    if (!*why && *out_any)
        *why = fault_of_kind(rule->kind[letter]);
    return letter;
}

static void go_forward(finder *f, ap_node n)
{
    const ap_node_info *node = ap_node_at(f->m, n);
    bool any;
    const char *why;
    ap_rule rule;
    if (ap_op_get(node->op)->terminator)
        return;
    ap_rule_get(f->m, n, f->arena, &rule);
    int8_t letter = letter_of_operands(f, n, &rule, &any, &why);
    int8_t *at = AP_NEW_ARRAY(f->arena, int8_t, node->nout);
    if (any && !why && !is_carried(&rule, letter, at))
        why = "needs the batch whole";
    if (any && why)
        refuse(f, n, why);
    for (uint32_t k = 0; k < node->nout; k++)
        f->b->factor[node->out[k]] = any && !why ? at[k] : AP_NO_BATCH;
}

/* ---- backward ---- */

enum { UNREAD = -1, READ_WHOLE = -2 }; /* what readers want of a value, else the factor that is cut */

/* Where all readers want the results cut along one letter, and the node can make them so. */
static void promote(finder *f, ap_node n, const ap_rule *rule, const int8_t *want)
{
    const ap_node_info *node = ap_node_at(f->m, n);
    int8_t letter = AP_RULE_NONE;
    for (uint32_t k = 0; k < node->nout; k++) {
        int8_t w = want[node->out[k]], here = w >= 0 && k < rule->nresults ? rule->result[k][w] : AP_RULE_NONE;
        if (w == UNREAD)
            continue;
        if (here == AP_RULE_NONE || (letter != AP_RULE_NONE && here != letter))
            return;
        letter = here;
    }
    int8_t *at = AP_NEW_ARRAY(f->arena, int8_t, node->nout);
    if (letter == AP_RULE_NONE || rule->kind[letter] != AP_LETTER_PARALLEL || !is_carried(rule, letter, at) ||
        ap_node_holding(f->m, n) == AP_HELD_AS_PARAM)
        return;
    for (uint32_t k = 0; k < node->nout; k++)
        f->b->factor[node->out[k]] = at[k];
}

static void go_backward(finder *f, ap_node n, int8_t *want)
{
    const ap_node_info *node = ap_node_at(f->m, n);
    ap_rule rule;
    ap_rule_get(f->m, n, f->arena, &rule);
    if (node->nout > 0 && f->b->factor[node->out[0]] == AP_NO_BATCH)
        promote(f, n, &rule, want);
    int8_t letter = ap_batch_letter(f->b, f->m, n, &rule);
    for (uint32_t i = 0; i < node->nin; i++) {
        int8_t cut = READ_WHOLE, *w = &want[node->in[i]];
        for (int k = 0; letter != AP_RULE_NONE && k < rule.operand_factors[i]; k++)
            cut = rule.operand[i][k] == letter ? (int8_t)k : cut;
        *w = *w == UNREAD || *w == cut ? cut : READ_WHOLE;
    }
}

/* ---- classes ---- */

static uint32_t find(const finder *f, uint32_t x)
{
    while (f->parent[x] != x)
        x = f->parent[x] = f->parent[f->parent[x]];
    return x;
}

static uint32_t item(ap_value v, int factor)
{
    return v * AP_MAX_FACTORS + (uint32_t)factor;
}

static void unite(const finder *f, ap_value v, int fv, ap_value w, int fw)
{
    f->parent[find(f, item(v, fv))] = find(f, item(w, fw));
}

/* A factor without a letter: what is made of the operand's factor at the same place, if that is as large. */
static void unite_same_place(const finder *f, ap_node n, const ap_rule *rule)
{
    const ap_node_info *node = ap_node_at(f->m, n);
    for (uint32_t k = 0; k < rule->nresults; k++) {
        const ap_shape_info *r = ap_value_shape(f->m, node->out[k]);
        for (uint32_t i = 0; i < rule->noperands; i++) {
            const ap_shape_info *s = ap_value_shape(f->m, node->in[i]);
            for (int d = 0; d < r->rank && d < s->rank; d++)
                for (int j = 0; j < r->first[d + 1] - r->first[d] && j < s->first[d + 1] - s->first[d]; j++) {
                    int fr = r->first[d] + j, fs = s->first[d] + j;
                    if (rule->result[k][fr] == AP_RULE_NONE && rule->operand[i][fs] == AP_RULE_NONE &&
                        r->logical[fr] == s->logical[fs])
                        unite(f, node->out[k], fr, node->in[i], fs);
                }
        }
    }
}

static void unite_letters(const finder *f, ap_node n)
{
    const ap_node_info *node = ap_node_at(f->m, n);
    ap_rule rule;
    ap_rule_get(f->m, n, f->arena, &rule);
    uint32_t first[AP_MAX_LETTERS];
    for (int l = 0; l < AP_MAX_LETTERS; l++)
        first[l] = AP_NONE;
    for (uint32_t i = 0; i < rule.noperands + rule.nresults; i++) {
        bool operand = i < rule.noperands;
        uint32_t k = operand ? i : i - rule.noperands;
        ap_value v = operand ? node->in[k] : node->out[k];
        const int8_t *letter = operand ? rule.operand[k] : rule.result[k];
        for (int x = 0; x < ap_value_shape(f->m, v)->nfactors; x++) {
            if (letter[x] == AP_RULE_NONE)
                continue;
            uint32_t *at = &first[letter[x]];
            if (*at == AP_NONE)
                *at = item(v, x);
            unite(f, *at / AP_MAX_FACTORS, (int)(*at % AP_MAX_FACTORS), v, x);
        }
    }
    unite_same_place(f, n, &rule);
}

/* A composite's results are what its body yields. */
static void unite_yields(const finder *f, ap_node n)
{
    const ap_node_info *node = ap_node_at(f->m, n);
    if (node->body == AP_NONE)
        return;
    const ap_block_info *body = ap_block_at(f->m, node->body);
    const ap_node_info *yield = ap_node_at(f->m, body->nodes.at[body->nodes.len - 1]);
    for (uint32_t k = 0; k < node->nout && k < yield->nin; k++)
        for (int x = 0; x < ap_value_shape(f->m, node->out[k])->nfactors; x++)
            unite(f, node->out[k], x, yield->in[k], x);
}

static void find_classes(finder *f)
{
    uint32_t n = f->m->values.len * AP_MAX_FACTORS;
    f->parent = AP_NEW_ARRAY(f->arena, uint32_t, n);
    for (uint32_t i = 0; i < n; i++)
        f->parent[i] = i;
    for (ap_node i = 0; i < f->m->nodes.len; i++) {
        if (ap_node_at(f->m, i)->block == AP_NONE || ap_op_get(ap_node_at(f->m, i)->op)->terminator)
            continue;
        unite_letters(f, i);
        unite_yields(f, i);
    }
    bool *is_batch = AP_NEW_ARRAY(f->arena, bool, n);
    for (ap_value v = 0; v < f->m->values.len; v++)
        if (f->b->factor[v] != AP_NO_BATCH)
            is_batch[find(f, item(v, f->b->factor[v]))] = true;
    for (uint32_t i = 0; i < n; i++)
        if (is_batch[find(f, i)])
            f->b->alike[i / AP_MAX_FACTORS] |= (uint16_t)(1u << i % AP_MAX_FACTORS);
}

/* ---- all of it ---- */

static void walk(finder *f, const ap_func_info *func)
{
    const ap_block_info *block = ap_block_at(f->m, func->body);
    int8_t *want = AP_NEW_ARRAY(f->arena, int8_t, f->m->values.len);
    memset(want, UNREAD, f->m->values.len);
    for (uint32_t i = 0; i < block->nodes.len; i++)
        go_forward(f, block->nodes.at[i]);
    for (uint32_t i = block->nodes.len; i-- > 0 && f->status == AP_OK;)
        go_backward(f, block->nodes.at[i], want);
    if (f->status == AP_OK)
        find_classes(f);
}

ap_status ap_batch_find(ap_ctx *ctx, const ap_module *m, const int8_t *argument, ap_arena *arena, ap_batch *out)
{
    const ap_func_info *func = &m->funcs.at[0];
    *out = (ap_batch){.factor = AP_NEW_ARRAY(arena, int8_t, m->values.len),
                      .alike = AP_NEW_ARRAY(arena, uint16_t, m->values.len)};
    memset(out->factor, AP_NO_BATCH, m->values.len);
    for (uint32_t i = 0; i < func->narguments; i++) {
        if (argument[i] == AP_NO_BATCH)
            continue;
        out->factor[func->argument[i]] = argument[i];
        out->extent = ap_value_shape(m, func->argument[i])->logical[argument[i]];
    }
    ap_arena tmp;
    ap_arena_init(&tmp, ctx->scratch.out_of_memory, ctx->scratch.user);
    finder f = {.ctx = ctx, .m = m, .arena = &tmp, .b = out, .told = ctx->diags.len};
    walk(&f, func);
    ap_arena_deinit(&tmp);
    return f.status;
}

static const char *input_name(const ap_module *m, uint32_t i)
{
    return ap_name_str(m->ctx, ap_value_at(m, m->funcs.at[0].argument[i])->name);
}

ap_status ap_batch_missing(ap_ctx *ctx, const ap_module *m, int32_t microbatches)
{
    enum { MOST = 4 };
    const ap_func_info *func = &m->funcs.at[0];
    ap_text names;
    ap_text_init(&names, &ctx->scratch);
    for (uint32_t i = 0; i < func->narguments && i < MOST; i++)
        ap_text_addf(&names, "%s\"%s\"", i ? ", " : "", input_name(m, i));
    if (func->narguments > MOST)
        ap_text_addf(&names, " and %" PRIu32 " more", func->narguments - MOST);
    return ap_fail(ctx, AP_ERR_USAGE, 0,
                   "no input has a batch to be cut into %" PRId32 " microbatches; there are %s (--batch-dim says which "
                   "dimension is one)",
                   microbatches, names.len ? ap_text_str(&names) : "no inputs");
}

/* None may be empty: its devices would compute padding. */
static ap_status check_filled(ap_ctx *ctx, const char *input, int64_t batch, int32_t microbatches)
{
    if (microbatches > batch)
        return ap_fail(ctx, AP_ERR_USAGE, 0,
                       "a batch of %" PRId64 " cannot be cut into %" PRId32 " microbatches (input \"%s\")", batch,
                       microbatches, input);
    int32_t fewer = ap_microbatches_filled(batch, microbatches);
    if (fewer == microbatches)
        return AP_OK;
    int64_t each = (batch - 1) / microbatches + 1, more = (batch - 1) / (each - 1) + 1; /* each > 1 */
    char up[48] = "";
    if (more <= AP_MAX_MICROBATCHES)
        snprintf(up, sizeof up, " and %" PRId64, more);
    return ap_fail(ctx, AP_ERR_USAGE, 0,
                   "a batch of %" PRId64 " cannot be cut into %" PRId32 " microbatches (input \"%s\"): of %" PRId64
                   " each, %" PRId32 " of them would be empty; the nearest that work are %" PRId32 "%s",
                   batch, microbatches, input, each, microbatches - fewer, fewer, up);
}

ap_status ap_batch_arguments(ap_ctx *ctx, const ap_module *m, const int8_t *dim, int32_t microbatches,
                             const int8_t **out)
{
    const ap_func_info *func = &m->funcs.at[0];
    int8_t *factor = AP_NEW_ARRAY(&ctx->arena, int8_t, func->narguments);
    int64_t extent = -1;
    uint32_t first = 0; /* input that has it */
    for (uint32_t i = 0; i < func->narguments; i++) {
        const ap_shape_info *s = ap_value_shape(m, func->argument[i]);
        factor[i] = AP_NO_BATCH;
        if (dim[i] == AP_NO_BATCH || dim[i] >= s->rank)
            continue;
        bool any = s->first[dim[i] + 1] > s->first[dim[i]];
        int64_t here = any ? s->logical[s->first[dim[i]]] : 1;
        if (extent >= 0 && here != extent)
            return ap_fail(ctx, AP_ERR_USAGE, 0,
                           "the batch is %" PRId64 " in input \"%s\" and %" PRId64 " in \"%s\": no microbatches",
                           extent, input_name(m, first), here, input_name(m, i));
        first = extent < 0 ? i : first;
        extent = here;
        factor[i] = any ? (int8_t)s->first[dim[i]] : AP_NO_BATCH;
    }
    *out = factor;
    if (extent < 0 && microbatches > 1)
        return ap_batch_missing(ctx, m, microbatches);
    return extent < 0 ? AP_OK : check_filled(ctx, input_name(m, first), extent, microbatches);
}
