/* Inside the exact search: its state, and what search.c, state.c and valley.c do with it. */
#ifndef AP_PASSES_PACK_SEARCH_H
#define AP_PASSES_PACK_SEARCH_H

#include "passes/pack/part.h"

typedef struct ap_pack_entry {
    int32_t low;
    uint32_t id;
} ap_pack_entry;

/* Unplaced items between two boundaries that none of them crosses; entries of the pool, one behind the other. */
typedef struct ap_pack_list {
    ap_pack_entry *at;
    uint32_t n;
} ap_pack_list;

typedef struct ap_pack_change {
    uint32_t id;
    int32_t was; /* its low; -1: it was not placed */
} ap_pack_change;

typedef struct ap_pack_state {
    ap_arena *arena;
    uint32_t n, nsections;
    int32_t capacity;
    int64_t work; /* left */
    /* per item */
    uint32_t *lo, *hi, *rank;
    int32_t *size, *low, *offset;
    uint64_t *code; /* equal for items that are alike */
    bool *placed;
    uint32_t *near_first, *near; /* items that share a section with item i: near[near_first[i] ...] */
    /* per section */
    uint32_t *starts_first, *starts, *ends_first, *ends; /* items that begin, end there */
    uint32_t *crossing;                                  /* unplaced items that live there and in the next one */
    int64_t *rest;                                       /* sum of unplaced sizes */
    int32_t *ground, *stack;                             /* of the list that is looked at */
    uint32_t *part;
    int64_t *failed; /* stacks that were too high there */
    ap_pack_entry *pool;
    ap_pack_list *lists;
    uint32_t pool_used, lists_used;
    AP_VEC(ap_pack_change) trail;
    uint64_t *memo;
    bool one_item; /* branch over one item of a valley instead of all at one end */
} ap_pack_state;

/* ---- state.c ---- */
void ap_pack_state_init(ap_pack_state *s, const ap_pack_part *p, int32_t capacity);
/* Puts the item at its low. True when a boundary has become one that nothing crosses. */
bool ap_pack_place(ap_pack_state *s, uint32_t id);
void ap_pack_set_low(ap_pack_state *s, uint32_t id, int32_t to);
void ap_pack_take_back(ap_pack_state *s, uint32_t mark);
ap_pack_list ap_pack_copy_without(ap_pack_state *s, ap_pack_list u, uint32_t i);
/* The list by parts, shortest first; the parts lie where the list lay. */
uint32_t ap_pack_split(ap_pack_state *s, ap_pack_list u, ap_pack_list *out);
void ap_pack_sections(const ap_pack_state *s, ap_pack_list u, uint32_t *out_lo, uint32_t *out_hi);
/* Sorts by low and stacks: false when something must exceed the capacity. Then ground, for sections lo ... hi. */
bool ap_pack_stacks_fit(ap_pack_state *s, ap_pack_list u, uint32_t lo, uint32_t hi);
void ap_pack_find_ground(ap_pack_state *s, ap_pack_list u);
/* An item that ends, if placed now, before any unplaced neighbour can begin: its index in the list, or AP_NONE. */
uint32_t ap_pack_find_settled(ap_pack_state *s, ap_pack_list u);
uint64_t ap_pack_hash(ap_pack_state *s, ap_pack_list u);

/* ---- valley.c ---- */
/* A valley lo ... hi seen from one of its ends. */
typedef struct ap_pack_valley {
    uint32_t lo, hi, at;
    int32_t ground;
    int64_t options; /* items that can lie there on the ground, and one more when none of them needs to */
    int64_t failed;
    bool can_rise;
} ap_pack_valley;

ap_pack_valley ap_pack_choose_valley(ap_pack_state *s, uint32_t lo, uint32_t hi);
/* The item lies within the valley on its ground; at the end from which it is seen. */
bool ap_pack_lies_in(const ap_pack_state *s, const ap_pack_valley *v, uint32_t id);
bool ap_pack_lies_at_end(const ap_pack_state *s, const ap_pack_valley *v, uint32_t id);
/* None of the items at this end lies on the ground. */
void ap_pack_rise(ap_pack_state *s, const ap_pack_valley *v);
/* This item does not lie on the ground; false when it must. */
bool ap_pack_rise_one(ap_pack_state *s, uint32_t id);

#endif
