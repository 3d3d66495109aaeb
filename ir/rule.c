/* Assignments of mesh axes and the shardings that they mean, in both directions. Nothing here knows an
 * operator: rules come from the columns of ir/op.def. */
#include "ir/rule.h"

#include "ir/op/columns.h"

#include <string.h>

void ap_rule_get(const ap_module *m, ap_node n, ap_arena *arena, ap_rule *out)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_op_info *info = ap_op_get(node->op);
    memset(out, 0, sizeof *out);
    if (!info->rule)
        return;
    out->noperands = node->nin;
    out->nresults = node->nout;
    out->operand = ap_arena_calloc(arena, node->nin, sizeof *out->operand);
    out->result = ap_arena_calloc(arena, node->nout, sizeof *out->result);
    out->operand_factors = AP_NEW_ARRAY(arena, uint8_t, node->nin);
    out->result_factors = AP_NEW_ARRAY(arena, uint8_t, node->nout);
    for (uint32_t i = 0; i < node->nin; i++)
        out->operand_factors[i] = ap_value_shape(m, node->in[i])->nfactors;
    for (uint32_t i = 0; i < node->nout; i++)
        out->result_factors[i] = ap_value_shape(m, node->out[i])->nfactors;
    memset(out->operand, AP_RULE_NONE, node->nin * sizeof *out->operand);
    memset(out->result, AP_RULE_NONE, node->nout * sizeof *out->result);
    out->result_partial = ap_arena_calloc(arena, node->nout, sizeof *out->result_partial);
    memset(out->result_partial, AP_RULE_NONE, node->nout * sizeof *out->result_partial);
    out->operand_partial = ap_arena_calloc(arena, node->nin, sizeof *out->operand_partial);
    memset(out->operand_partial, AP_RULE_NONE, node->nin * sizeof *out->operand_partial);
    info->rule(m, n, out);
}

/* What the rule says of one operand or result, whichever it is. */
typedef struct place {
    const int8_t *letter; /* per factor */
    uint8_t nfactors;
    bool is_result;
    uint32_t index;
} place;

static place place_at(const ap_rule *rule, uint32_t i)
{
    if (i < rule->noperands)
        return (place){rule->operand[i], rule->operand_factors[i], false, i};
    i -= rule->noperands;
    return (place){rule->result[i], rule->result_factors[i], true, i};
}

bool ap_rule_partial(const ap_rule *r, int letter, uint32_t result, ap_partial *out)
{
    switch (r->kind[letter]) {
    case AP_LETTER_SUM:
    case AP_LETTER_INDEXED:
        *out = AP_PARTIAL_SUM;
        return true;
    case AP_LETTER_MAX:
        *out = AP_PARTIAL_MAX;
        return true;
    case AP_LETTER_MIN:
        *out = AP_PARTIAL_MIN;
        return true;
    case AP_LETTER_INNER:
        if (r->result_partial[result][letter] == AP_RULE_NONE)
            return false;
        *out = (ap_partial)r->result_partial[result][letter];
        return true;
    case AP_LETTER_PARALLEL:
    case AP_LETTER_WHOLE:
        break;
    }
    return false;
}

static bool choice_valid(const ap_rule *rule, const ap_choice *c)
{
    if (c->letter != AP_RULE_NONE)
        return c->group == AP_RULE_NONE && c->letter >= 0 && c->letter < rule->nletters &&
               rule->kind[c->letter] != AP_LETTER_WHOLE;
    if (c->group != AP_RULE_NONE)
        return c->group >= 0 && c->group < rule->ngroups && c->partial == AP_PARTIAL_SUM;
    return true;
}

/* Whether axis choice `c` makes the place partial, and how. */
static bool place_partial(const ap_rule *rule, const place *p, const ap_choice *c, ap_partial *out)
{
    if (c->letter != AP_RULE_NONE && p->is_result)
        return ap_rule_partial(rule, c->letter, p->index, out);
    if (c->letter != AP_RULE_NONE) {
        int8_t kind = rule->operand_partial[p->index][c->letter];
        *out = (ap_partial)kind;
        return kind != AP_RULE_NONE;
    }
    if (c->group == AP_RULE_NONE)
        return false;
    *out = (ap_partial)c->partial;
    return p->is_result || (p->index < 32 && (rule->group[c->group] >> p->index & 1u));
}

static ap_sharding place_sharding(const ap_module *m, const ap_rule *rule, ap_mesh mesh, const ap_assign *assign,
                                  const place *p)
{
    ap_sharding_info s;
    memset(&s, 0, sizeof s);
    s.mesh = mesh;
    s.nfactors = p->nfactors;
    for (int a = 0; a < m->meshes.at[mesh].naxes; a++) {
        const ap_choice *c = &assign->axis[a];
        ap_partial kind;
        for (int f = 0; f < s.nfactors && c->letter != AP_RULE_NONE; f++) {
            if (p->letter[f] == c->letter)
                s.axes[f] = ap_axes_append(s.axes[f], a);
        }
        if (place_partial(rule, p, c, &kind))
            s.partial[kind] |= (uint8_t)(1u << a);
    }
    return ap_sharding_intern(m->ctx, &s);
}

static bool assign_valid(const ap_rule *rule, const ap_mesh_info *mesh, const ap_assign *assign)
{
    int64_t parts[AP_MAX_LETTERS];
    for (int l = 0; l < rule->nletters; l++)
        parts[l] = 1;
    for (int a = 0; a < mesh->naxes; a++) {
        const ap_choice *c = &assign->axis[a];
        if (!choice_valid(rule, c))
            return false;
        if (c->letter != AP_RULE_NONE)
            parts[c->letter] *= mesh->axis_size[a];
    }
    for (int l = 0; l < rule->nletters; l++) {
        if (rule->physical[l] % parts[l] != 0)
            return false;
    }
    return true;
}

bool ap_rule_apply(const ap_module *m, const ap_rule *rule, ap_mesh mesh, const ap_assign *assign, ap_arena *arena,
                   ap_strategy *out)
{
    if (!assign_valid(rule, &m->meshes.at[mesh], assign))
        return false;
    out->operand = AP_NEW_ARRAY(arena, ap_sharding, rule->noperands);
    out->result = AP_NEW_ARRAY(arena, ap_sharding, rule->nresults);
    for (uint32_t i = 0; i < rule->noperands + rule->nresults; i++) {
        place p = place_at(rule, i);
        ap_sharding s = place_sharding(m, rule, mesh, assign, &p);
        *(p.is_result ? &out->result[p.index] : &out->operand[p.index]) = s;
    }
    return true;
}

/* ---- the reverse ---- */

/* Whether axis a does in sharding s exactly what choice c asks of the place; the order of axes on one factor is
 * compared later, for the whole assignment. */
static bool place_agrees(const ap_rule *rule, const place *p, const ap_sharding_info *s, int a, const ap_choice *c)
{
    ap_partial kind = AP_PARTIAL_COUNT;
    bool partial = place_partial(rule, p, c, &kind);
    for (int f = 0; f < s->nfactors; f++) {
        bool split = ap_axes_mask(s->axes[f]) >> a & 1u;
        if (split != (c->letter != AP_RULE_NONE && p->letter[f] == c->letter))
            return false;
    }
    for (int k = 0; k < AP_PARTIAL_COUNT; k++) {
        if ((s->partial[k] >> a & 1u) != (partial && k == (int)kind))
            return false;
    }
    return true;
}

typedef struct reading {
    const ap_rule *rule;
    const ap_sharding_info **sharding; /* operands, then results */
} reading;

static bool choice_agrees(const reading *r, int a, const ap_choice *c)
{
    if (!choice_valid(r->rule, c))
        return false;
    for (uint32_t i = 0; i < r->rule->noperands + r->rule->nresults; i++) {
        place p = place_at(r->rule, i);
        if (!place_agrees(r->rule, &p, r->sharding[i], a, c))
            return false;
    }
    return true;
}

static bool read_axis(const reading *r, int a, ap_choice *out)
{
    *out = (ap_choice){.letter = AP_RULE_NONE, .group = AP_RULE_NONE};
    if (choice_agrees(r, a, out))
        return true;
    for (int l = 0; l < r->rule->nletters; l++) {
        *out = (ap_choice){.letter = (int8_t)l, .group = AP_RULE_NONE};
        if (choice_agrees(r, a, out))
            return true;
    }
    for (int g = 0; g < r->rule->ngroups; g++) {
        *out = (ap_choice){.letter = AP_RULE_NONE, .group = (int8_t)g, .partial = AP_PARTIAL_SUM};
        if (choice_agrees(r, a, out))
            return true;
    }
    return false;
}

static bool read_all(const ap_module *m, ap_node n, const ap_rule *rule, ap_mesh mesh, ap_arena *tmp, ap_assign *out)
{
    const ap_node_info *node = ap_node_at(m, n);
    uint32_t count = rule->noperands + rule->nresults;
    reading r = {rule, AP_NEW_ARRAY(tmp, const ap_sharding_info *, count)};
    ap_sharding *have = AP_NEW_ARRAY(tmp, ap_sharding, count);
    for (uint32_t i = 0; i < count; i++) {
        ap_value v = i < rule->noperands ? node->in[i] : node->out[i - rule->noperands];
        have[i] = ap_type_get(m->ctx, ap_value_type(m, v)).sharding;
        r.sharding[i] = ap_sharding_get(m->ctx, have[i]);
        if (have[i] == 0 || r.sharding[i]->mesh != mesh)
            return false;
    }
    for (int a = 0; a < m->meshes.at[mesh].naxes; a++) {
        if (!read_axis(&r, a, &out->axis[a]))
            return false;
    }
    ap_strategy s;
    if (!ap_rule_apply(m, rule, mesh, out, tmp, &s))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (have[i] != (i < rule->noperands ? s.operand[i] : s.result[i - rule->noperands]))
            return false;
    }
    return true;
}

bool ap_rule_read(const ap_module *m, ap_node n, const ap_rule *rule, ap_mesh mesh, ap_assign *out)
{
    for (int a = 0; a < AP_MAX_AXES; a++)
        out->axis[a] = (ap_choice){.letter = AP_RULE_NONE, .group = AP_RULE_NONE};
    if (rule->noperands + rule->nresults == 0)
        return true;
    ap_arena tmp;
    ap_arena_init(&tmp, m->ctx->scratch.out_of_memory, m->ctx->scratch.user);
    bool ok = read_all(m, n, rule, mesh, &tmp, out);
    ap_arena_deinit(&tmp);
    return ok;
}

int ap_rule_choices(const ap_rule *rule, int32_t axis_size, ap_choice out[AP_MAX_CHOICES])
{
    int n = 0;
    out[n++] = (ap_choice){.letter = AP_RULE_NONE, .group = AP_RULE_NONE};
    for (int l = 0; l < rule->nletters; l++) {
        if (rule->kind[l] != AP_LETTER_WHOLE && rule->physical[l] % axis_size == 0)
            out[n++] = (ap_choice){.letter = (int8_t)l, .group = AP_RULE_NONE};
    }
    for (int g = 0; g < rule->ngroups; g++)
        out[n++] = (ap_choice){.letter = AP_RULE_NONE, .group = (int8_t)g, .partial = AP_PARTIAL_SUM};
    return n;
}
