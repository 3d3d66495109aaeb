/* Sharding rules. A rule maps the factors of a node's operands and results onto *rule letters*; a
 * strategy assigns to each mesh axis one letter, one linear group, or nothing. One function,
 * ap_rule_apply, turns an assignment into shardings, and one, ap_rule_read, does the reverse: planner,
 * verifier, lowering and printers have no case per operator (DESIGN §5).
 *
 *     contract {bsk,k(thd)->bs(thd)}     letters b s k t h d; k is reduced (sum)
 *     tp -> h     x @m[-,-,-]   w @m[-,-.tp.-]   y @m[-,-,-.tp.-]
 *     tp -> k     x @m[-,-,tp]  w @m[tp,-]       y @m[-,-,-] sum(tp)
 */
#ifndef AP_IR_RULE_H
#define AP_IR_RULE_H

#include "ir/module.h"

#define AP_MAX_LETTERS 24
#define AP_RULE_NONE (-1)

typedef enum ap_letter_kind {
    AP_LETTER_PARALLEL, /* splittable; splitting it leaves results complete */
    AP_LETTER_SUM,      /* reduced by a sum: splitting it makes the results partial */
    AP_LETTER_MAX,
    AP_LETTER_MIN,
    AP_LETTER_INDEXED, /* gather: rows elsewhere count as 0, results are partial sums */
    AP_LETTER_WHOLE,   /* must not be split */
    AP_LETTER_INNER,   /* of composites: values inside are completed when it is split; result_partial says what results
                          are */
} ap_letter_kind;

typedef struct ap_rule {
    uint8_t nletters;
    ap_letter_kind kind[AP_MAX_LETTERS];
    int64_t logical[AP_MAX_LETTERS], physical[AP_MAX_LETTERS];
    uint32_t noperands, nresults;
    /* Per operand (result): letter of each factor, or AP_RULE_NONE for a factor that must stay whole. */
    int8_t (*operand)[AP_MAX_FACTORS];
    int8_t (*result)[AP_MAX_FACTORS];
    uint8_t *operand_factors, *result_factors; /* how many factors each has */
    /* Per result: the ap_partial that splitting a letter of kind INNER gives it, or AP_RULE_NONE. */
    int8_t (*result_partial)[AP_MAX_LETTERS];
    /* Per operand: the ap_partial that splitting a letter which it does not have asks of it, or AP_RULE_NONE: nothing.
     */
    int8_t (*operand_partial)[AP_MAX_LETTERS];
    uint8_t ngroups;   /* linear groups */
    uint32_t group[4]; /* bit i: operand i belongs to it (operands 0..31) */
} ap_rule;

/* What one mesh axis does at one node. */
typedef struct ap_choice {
    int8_t letter;   /* AP_RULE_NONE: none */
    int8_t group;    /* AP_RULE_NONE: none; else the operands of that group and the results are partial */
    uint8_t partial; /* ap_partial of the group */
} ap_choice;

typedef struct ap_assign {
    ap_choice axis[AP_MAX_AXES]; /* one per axis of the mesh; order of axes on one letter = mesh order */
} ap_assign;

/* The shardings that an assignment gives. Arrays have noperands and nresults entries, in the arena given. */
typedef struct ap_strategy {
    ap_sharding *operand;
    ap_sharding *result;
} ap_strategy;

/* The rule of a node; arrays in `arena`. Nodes without a rule (terminators, reshard, steps) have
 * noperands 0 and nletters 0. */
void ap_rule_get(const ap_module *m, ap_node n, ap_arena *arena, ap_rule *out);

/* False when the assignment is impossible: a letter's physical extent does not divide, the letter is
 * whole, or a group does not exist. */
bool ap_rule_apply(const ap_module *m, const ap_rule *rule, ap_mesh mesh, const ap_assign *assign, ap_arena *arena,
                   ap_strategy *out);

/* Reads the assignment off the types of a node in state planned or later; false when the types satisfy no
 * assignment of the rule exactly. */
bool ap_rule_read(const ap_module *m, ap_node n, const ap_rule *rule, ap_mesh mesh, ap_assign *out);

/* A value of a body that is made partial and completed before it is read on: a collective inside a composite. */
typedef struct ap_inner {
    ap_value value;
    ap_sharding from, to;
} ap_inner;

/* What an assignment means inside a composite, bodies inside it included, in order. */
typedef struct ap_rule_body {
    uint32_t nvalues, ninner;
    ap_value *value;
    ap_sharding *sharding; /* as made */
    ap_inner *inner;
} ap_rule_body;

/* False when the assignment is impossible for n's rule. Reshards that stand in the body already are looked through. */
bool ap_rule_apply_body(const ap_module *m, ap_node n, ap_mesh mesh, const ap_assign *assign, ap_arena *arena,
                        ap_rule_body *out);
/* Gives the values of n's body these shardings, and puts a reshard behind each value that is completed; reshards of a
 * former assignment go. */
void ap_rule_write_body(ap_module *m, ap_node n, const ap_rule_body *body);

/* All assignments of one axis alone: nothing, each letter that divides, each group with SUM.
 * Returns how many were written (at most AP_MAX_CHOICES). */
#define AP_MAX_CHOICES (1 + AP_MAX_LETTERS + 4)
int ap_rule_choices(const ap_rule *rule, int32_t axis_size, ap_choice out[AP_MAX_CHOICES]);

#endif
