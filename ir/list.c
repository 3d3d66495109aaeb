/* Instruction lists as text, and walking through them. */
#include "ir/list.h"

#include "ir/print.h"

#include <inttypes.h>

const char *const ap_act_text[AP_ACT_KIND_COUNT] = {"recv", "claim", "run", "free", "send", "loop"};

bool ap_list_next(ap_list_walk *w)
{
    const ap_act *acts = w->list->acts.at;
    if (w->loop && w->next == w->end) {
        bool again = w->turn + 1 < acts[w->loop - 1].turns;
        w->turn++;
        if (again)
            w->next = w->loop;
        else
            w->loop = 0;
    }
    if (w->next == w->list->acts.len)
        return false;
    if (acts[w->next].kind == AP_ACT_LOOP) {
        w->turn = 0;
        w->end = w->next + 1 + acts[w->next].body;
        w->loop = ++w->next;
    }
    w->act = &acts[w->next++];
    w->microbatch = w->act->shift + (w->loop ? w->turn : 0);
    return true;
}

/* ---- print ---- */

void ap_act_print(const ap_wiring *w, const ap_act *a, bool in_loop, ap_text *out)
{
    ap_text_add(out, ap_act_text[a->kind]);
    if (a->kind == AP_ACT_LOOP) {
        ap_text_addf(out, " %" PRId32, a->turns);
        return;
    }
    if (ap_act_has_wire(a->kind)) {
        ap_text_add(out, " %");
        ap_print_name(w->ctx, w->wire[a->wire].slot, out);
    }
    if (!in_loop)
        ap_text_addf(out, " %" PRId32, a->shift);
    else if (a->shift)
        ap_text_addf(out, " k%+" PRId32, a->shift);
    else
        ap_text_add(out, " k");
    if (ap_act_is_of_sender(a->kind)) {
        ap_text_add(out, " -> @");
        ap_print_name(w->ctx, w->stage[w->wire[a->wire].to], out);
    }
}

static void print_list(const ap_wiring *w, const ap_list *list, ap_text *out)
{
    uint32_t end = 0; /* of the loop that we are in */
    for (uint32_t i = 0; i < list->acts.len; i++) {
        const ap_act *a = &list->acts.at[i];
        bool loop = a->kind == AP_ACT_LOOP;
        ap_text_add(out, i < end ? "    " : "  ");
        ap_act_print(w, a, i < end, out);
        ap_text_add(out, loop ? " {\n" : "\n");
        if (loop)
            end = i + 1 + a->body;
        else if (i + 1 == end)
            ap_text_add(out, "  }\n");
    }
}

void ap_lists_print(const ap_wiring *w, const ap_list *lists, ap_text *out)
{
    for (uint32_t s = 0; s < w->nstages; s++) {
        ap_text_add(out, "list @");
        ap_print_name(w->ctx, w->stage[s], out);
        ap_text_add(out, " {\n");
        print_list(w, &lists[s], out);
        ap_text_add(out, "}\n");
    }
}

/* ---- parse ---- */

/* "-> @stage" of what stage `s` sends. */
static ap_status parse_to(ap_lex *l, const ap_wiring *w, uint32_t s, ap_name slot, uint32_t *out)
{
    ap_name to;
    AP_TRY(ap_lex_expect(l, "->"));
    AP_TRY(ap_lex_expect(l, "@"));
    AP_TRY(ap_lex_name(l, "the stage that receives", &to, NULL));
    for (uint32_t i = 0; i < w->nwires; i++)
        if (w->wire[i].slot == slot && w->wire[i].from == s && w->stage[w->wire[i].to] == to) {
            *out = i;
            return AP_OK;
        }
    return ap_lex_error(l, "stage @%s sends no %%%s to @%s", ap_name_str(w->ctx, w->stage[s]),
                        ap_name_str(w->ctx, slot), ap_name_str(w->ctx, to));
}

static ap_status find_received(ap_lex *l, const ap_wiring *w, uint32_t s, ap_name slot, uint32_t *out)
{
    for (uint32_t i = 0; i < w->nwires; i++)
        if (w->wire[i].slot == slot && w->wire[i].to == s) {
            *out = i;
            return AP_OK;
        }
    return ap_lex_error(l, "stage @%s receives no %%%s", ap_name_str(w->ctx, w->stage[s]), ap_name_str(w->ctx, slot));
}

static ap_status parse_microbatch(ap_lex *l, bool in_loop, int32_t *out)
{
    int64_t n = 0;
    if (!in_loop) {
        AP_TRY(ap_lex_range(l, "microbatch", 0, AP_MAX_MICROBATCHES - 1, &n));
    } else {
        AP_TRY(ap_lex_expect_word(l, "k"));
        ap_lex_skip(l);
        bool arrow = l->size - l->pos > 1 && l->text[l->pos] == '-' && l->text[l->pos + 1] == '>';
        bool minus = !arrow && ap_lex_accept(l, "-");
        if (minus || ap_lex_accept(l, "+"))
            AP_TRY(ap_lex_range(l, "microbatch", 1, AP_MAX_MICROBATCHES - 1, &n));
        n = minus ? -n : n;
    }
    *out = (int32_t)n;
    return AP_OK;
}

static ap_status parse_act(ap_lex *l, const ap_wiring *w, uint32_t s, bool in_loop, ap_list *list)
{
    ap_act a = {.kind = AP_ACT_RECV};
    while (a.kind != AP_ACT_LOOP && !ap_lex_accept_word(l, ap_act_text[a.kind]))
        a.kind++;
    if (a.kind == AP_ACT_LOOP)
        return ap_lex_error(l, "expected recv, claim, run, free, send%s", in_loop ? "" : " or loop");
    ap_name slot = 0;
    if (ap_act_has_wire(a.kind)) {
        AP_TRY(ap_lex_expect(l, "%"));
        AP_TRY(ap_lex_name(l, "the name of a slot", &slot, NULL));
        if (!ap_act_is_of_sender(a.kind))
            AP_TRY(find_received(l, w, s, slot, &a.wire));
    }
    AP_TRY(parse_microbatch(l, in_loop, &a.shift));
    if (ap_act_is_of_sender(a.kind))
        AP_TRY(parse_to(l, w, s, slot, &a.wire));
    if (list->acts.len == AP_LIST_MAX_ACTS)
        return ap_lex_error(l, "more than %d instructions in a list", AP_LIST_MAX_ACTS);
    ap_vec_push(&w->ctx->arena, &list->acts, a);
    return AP_OK;
}

/* After `loop`. */
static ap_status parse_loop(ap_lex *l, const ap_wiring *w, uint32_t s, ap_list *list)
{
    int64_t turns;
    AP_TRY(ap_lex_range(l, "turns", 1, AP_MAX_MICROBATCHES, &turns));
    AP_TRY(ap_lex_expect(l, "{"));
    uint32_t head = list->acts.len;
    if (head == AP_LIST_MAX_ACTS)
        return ap_lex_error(l, "more than %d instructions in a list", AP_LIST_MAX_ACTS);
    ap_vec_push(&w->ctx->arena, &list->acts, (ap_act){.kind = AP_ACT_LOOP, .turns = (int32_t)turns});
    do
        AP_TRY(parse_act(l, w, s, true, list));
    while (!ap_lex_accept(l, "}"));
    list->acts.at[head].body = list->acts.len - head - 1;
    return AP_OK;
}

static ap_status find_stage(ap_lex *l, const ap_wiring *w, uint32_t *out)
{
    ap_name name;
    AP_TRY(ap_lex_expect(l, "@"));
    AP_TRY(ap_lex_name(l, "the name of a stage", &name, NULL));
    for (uint32_t s = 0; s < w->nstages; s++)
        if (w->stage[s] == name) {
            *out = s;
            return AP_OK;
        }
    return ap_lex_error(l, "no stage @%s", ap_name_str(w->ctx, name));
}

ap_status ap_lists_parse(ap_lex *l, const ap_wiring *w, ap_list *lists)
{
    uint32_t s = 0;
    while (ap_lex_accept_word(l, "list")) {
        AP_TRY(find_stage(l, w, &s));
        if (lists[s].acts.len)
            return ap_lex_error(l, "a second list of stage @%s", ap_name_str(w->ctx, w->stage[s]));
        AP_TRY(ap_lex_expect(l, "{"));
        while (!ap_lex_accept(l, "}")) {
            if (ap_lex_accept_word(l, ap_act_text[AP_ACT_LOOP]))
                AP_TRY(parse_loop(l, w, s, &lists[s]));
            else
                AP_TRY(parse_act(l, w, s, false, &lists[s]));
        }
        if (!lists[s].acts.len)
            return ap_lex_error(l, "the list of stage @%s is empty", ap_name_str(w->ctx, w->stage[s]));
    }
    for (s = 0; s < w->nstages; s++)
        if (!lists[s].acts.len)
            return ap_lex_error(l, "stage @%s has no list", ap_name_str(w->ctx, w->stage[s]));
    return AP_OK;
}
