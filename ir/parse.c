/* Text -> module: the lines of a module and the names in it. One pass, everything declared before it is
 * used; the first mistake ends it. Types are read, not inferred: ap_module_verify compares. */
#include "ir/parse.h"

#include "ir/print.h"
#include "ir/text_form.h"

#include <string.h>

uint32_t ap_parse_lookup(const ap_parser *p, ap_parse_sort sort, ap_name name)
{
    return name < p->id[sort].len ? p->id[sort].at[name] - 1u : AP_NONE;
}

ap_status ap_parse_bind(ap_parser *p, ap_parse_sort sort, ap_name name, uint32_t id)
{
    static const char *const what[] = {"value %", "value %", "symbol @", "function @"};
    if (ap_parse_lookup(p, sort, name) != AP_NONE)
        return ap_lex_error(&p->lex, "%s%s is defined twice", what[sort], ap_name_str(p->m->ctx, name));
    while (p->id[sort].len <= name)
        ap_vec_push(&p->m->ctx->arena, &p->id[sort], 0);
    p->id[sort].at[name] = id + 1;
    if (sort == AP_PARSE_VALUE || sort == AP_PARSE_NUMBER)
        ap_vec_push(&p->m->ctx->arena, &p->bound, (ap_parse_binding){sort, name});
    return AP_OK;
}

ap_status ap_parse_operand(ap_parser *p, ap_value *out)
{
    ap_name name;
    bool digits;
    ap_lex_skip(&p->lex);
    size_t mark = p->lex.mark;
    bool symbol = ap_lex_accept(&p->lex, "@");
    if (!symbol)
        AP_TRY(ap_lex_expect(&p->lex, "%"));
    AP_TRY(ap_lex_name(&p->lex, symbol ? "a symbol name" : "a value name", &name, symbol ? NULL : &digits));
    ap_parse_sort sort = symbol ? AP_PARSE_SYMBOL : digits ? AP_PARSE_NUMBER : AP_PARSE_VALUE;
    uint32_t id = ap_parse_lookup(p, sort, name);
    p->lex.mark = mark;
    if (id == AP_NONE)
        return ap_lex_error(&p->lex, "%c%s is not defined here", symbol ? '@' : '%', ap_name_str(p->m->ctx, name));
    *out = symbol ? p->m->symbols.at[id].value : id;
    return AP_OK;
}

static ap_status parse_state(ap_parser *p)
{
    int state;
    AP_TRY(ap_parse_choice(&p->lex, "a state", ap_state_text, AP_STATE_COUNT, &state));
    p->m->state = (ap_state)state;
    return AP_OK;
}

static ap_status parse_mesh(ap_parser *p)
{
    ap_mesh_info info;
    ap_lex_skip(&p->lex);
    size_t mark = p->lex.mark;
    AP_TRY(ap_parse_mesh(&p->lex, p->microbatches, &info));
    p->lex.mark = mark;
    for (ap_mesh i = 0; i < p->m->meshes.len; i++)
        if (p->m->meshes.at[i].name == info.name)
            return ap_lex_error(&p->lex, "mesh @%s is defined twice", ap_name_str(p->m->ctx, info.name));
    ap_module_add_mesh(p->m, &info);
    return AP_OK;
}

/* All meshes of a module have the same time. */
static ap_status parse_time(ap_parser *p)
{
    if (p->microbatches || p->m->meshes.len)
        return ap_lex_error(&p->lex, "time stands once, before the meshes");
    return ap_parse_time(&p->lex, &p->microbatches);
}

static ap_status parse_symbol(ap_parser *p, ap_symbol_kind kind)
{
    ap_lex *l = &p->lex;
    ap_name name;
    ap_type type;
    ap_raw_data raw = {0};
    ap_data data = {0};
    ap_loc loc = 0;
    AP_TRY(ap_lex_expect(l, "@"));
    size_t mark = l->mark;
    AP_TRY(ap_lex_name(l, "a symbol name", &name, NULL));
    AP_TRY(ap_lex_expect(l, ":"));
    AP_TRY(ap_parse_type(l, p->m, &type));
    if (ap_lex_accept_word(l, "data")) {
        AP_TRY(ap_parse_data_in_parens(l, &raw));
        AP_TRY(ap_parse_data_finish(l, &raw, ap_type_dtype(p->m->ctx, type),
                                    ap_shape_count(ap_type_shape(p->m->ctx, type)), &data));
    }
    AP_TRY(ap_lex_loc(l, &loc));
    l->mark = mark;
    AP_TRY(ap_parse_bind(p, AP_PARSE_SYMBOL, name, p->m->symbols.len));
    ap_module_add_symbol(p->m, kind, name, type, data, loc);
    return AP_OK;
}

/* "(%x: T, slot %h: T, ...)" */
static ap_status parse_arguments(ap_parser *p, ap_func f)
{
    ap_lex *l = &p->lex;
    AP_TRY(ap_lex_expect(l, "("));
    if (ap_lex_accept(l, ")"))
        return AP_OK;
    do {
        ap_name name;
        ap_type type;
        bool digits, slot = ap_lex_accept_word(l, "slot");
        AP_TRY(ap_lex_expect(l, "%"));
        size_t mark = l->mark;
        AP_TRY(ap_lex_name(l, "a value name", &name, &digits));
        AP_TRY(ap_lex_expect(l, ":"));
        AP_TRY(ap_parse_type(l, p->m, &type));
        ap_value v = ap_func_add_argument(p->m, f, digits ? 0 : name, type);
        p->m->funcs.at[f].argument_slot[p->m->funcs.at[f].narguments - 1] = slot;
        l->mark = mark;
        AP_TRY(ap_parse_bind(p, digits ? AP_PARSE_NUMBER : AP_PARSE_VALUE, name, v));
    } while (ap_lex_accept(l, ","));
    return ap_lex_expect(l, ")");
}

/* "-> "y" T, slot "h" T, ..." or nothing */
static ap_status parse_results(ap_parser *p, ap_func f)
{
    ap_lex *l = &p->lex;
    AP_VEC(ap_type) types = {0};
    AP_VEC(ap_name) names = {0};
    AP_VEC(bool) slots = {0};
    if (ap_lex_accept(l, "->")) {
        do {
            ap_name name = 0;
            ap_type type;
            ap_vec_push(&p->m->ctx->arena, &slots, ap_lex_accept_word(l, "slot"));
            if (ap_lex_peek(l) == '"')
                AP_TRY(ap_lex_quoted_name(l, "a result name", &name));
            AP_TRY(ap_parse_type(l, p->m, &type));
            ap_vec_push(&p->m->ctx->arena, &types, type);
            ap_vec_push(&p->m->ctx->arena, &names, name);
        } while (ap_lex_accept(l, ","));
    }
    ap_func_set_results(p->m, f, types.len, types.at, names.at);
    for (uint32_t i = 0; i < slots.len; i++)
        p->m->funcs.at[f].result_slot[i] = slots.at[i];
    return AP_OK;
}

static ap_status parse_func(ap_parser *p)
{
    ap_lex *l = &p->lex;
    ap_name name;
    AP_TRY(ap_lex_expect(l, "@"));
    AP_TRY(ap_lex_name(l, "a function name", &name, NULL));
    AP_TRY(ap_parse_bind(p, AP_PARSE_FUNC, name, p->m->funcs.len));
    ap_func f = ap_module_add_func(p->m, name);
    p->func = f;
    AP_TRY(parse_arguments(p, f));
    AP_TRY(parse_results(p, f));
    AP_TRY(ap_lex_expect(l, "{"));
    AP_TRY(ap_parse_block(p, p->m->funcs.at[f].body, 0));
    for (uint32_t i = 0; i < p->bound.len; i++)
        p->id[p->bound.at[i].sort].at[p->bound.at[i].name] = 0;
    p->bound.len = 0;
    return AP_OK;
}

static ap_status parse_line(ap_parser *p)
{
    if (ap_lex_accept_word(&p->lex, "time"))
        return parse_time(p);
    if (ap_lex_accept_word(&p->lex, "mesh"))
        return parse_mesh(p);
    if (ap_lex_accept_word(&p->lex, "func"))
        return parse_func(p);
    for (int k = 0; k < AP_SYMBOL_KIND_COUNT; k++)
        if (ap_lex_accept_word(&p->lex, ap_symbol_kind_text[k]))
            return parse_symbol(p, (ap_symbol_kind)k);
    return ap_lex_error(&p->lex, "expected mesh, time, param, state, accum or func");
}

/* `state normal` is the module's state; `state @s` is a symbol. */
static bool at_state_line(ap_lex *l)
{
    ap_lex ahead = *l;
    return ap_lex_accept_word(&ahead, "state") && ap_lex_peek(&ahead) != '@' && ap_lex_accept_word(l, "state");
}

ap_status ap_module_parse_part(ap_lex *l, ap_module **out)
{
    ap_parser p = {.lex = *l, .m = ap_module_create(l->ctx)};
    bool stated = false;
    if (at_state_line(&p.lex)) {
        AP_TRY(parse_state(&p));
        stated = true;
    }
    while (!ap_lex_at_end(&p.lex) && ap_lex_peek(&p.lex) != '}')
        AP_TRY(parse_line(&p));
    if (p.microbatches && p.m->meshes.len == 0)
        return ap_lex_error(&p.lex, "time without a mesh");
    if (!stated)
        p.m->state = p.m->meshes.len ? AP_STATE_PLANNED : AP_STATE_IMPORTED;
    *l = p.lex;
    *out = p.m;
    return AP_OK;
}

ap_status ap_module_parse(ap_ctx *ctx, const char *name, const char *text, size_t size, ap_module **out)
{
    ap_lex l;
    ap_lex_init(&l, ctx, name, text, size);
    AP_TRY(ap_module_parse_part(&l, out));
    return ap_lex_at_end(&l) ? AP_OK : ap_lex_error(&l, "expected mesh, time, param, state, accum or func");
}

ap_status ap_sharding_parse(ap_module *m, const char *text, ap_shape shape, ap_sharding *out)
{
    ap_lex l;
    ap_sharding_info info;
    ap_lex_init(&l, m->ctx, NULL, text, strlen(text));
    ap_lex_accept(&l, "@");
    AP_TRY(ap_parse_sharding(&l, m, ap_shape_get(m->ctx, shape), true, &info));
    if (!ap_lex_at_end(&l))
        return ap_lex_error(&l, "unexpected text after the sharding");
    *out = ap_sharding_intern(m->ctx, &info);
    return AP_OK;
}
