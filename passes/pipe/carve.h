/* One stage of a module as a module of its own (DESIGN §8). What crosses its borders are slots (ir/module.h), named
 * after their values:
 *
 *     func @main(%x: ..) -> "y" ..          [0,2)  func @main(%x: ..) -> slot "h" .. { %a; %h; ret %h }
 *       { %a; %h; %b; %y; ret %y }          [2,4)  func @main(slot %h: ..) -> "y" .. { %b; %y; ret %y }
 *
 * A value is sent by the stage that makes it straight to each stage that reads it, however many lie between. Inputs of
 * the model are read by whichever stage wants them, an output is written by the stage that makes it (and is a slot
 * beside that, if it is read later on). A stage has the symbols that it reads; one that several read is in each.
 *
 * What is there for nothing everywhere is made again where it is read, and never sent: nodes without operands,
 * pointwise and other light work on these alone, views of symbols, and light work on symbols where all of it is small
 * (the scale of a normalisation that has learnt its variance). */
#ifndef AP_PASSES_PIPE_CARVE_H
#define AP_PASSES_PIPE_CARVE_H

#include "ir/module.h"

typedef struct ap_carver ap_carver; /* what is asked of the whole again and again; for one thread */

/* `m`: state normal, one function; it must not change while the carver is used. Everything lives in `arena`. */
ap_carver *ap_carver_create(ap_arena *arena, const ap_module *m);
uint32_t ap_carver_nnodes(const ap_carver *c); /* of the function's block without `ret` */
/* Whether the node at that position is one of those that are made again where they are read. */
bool ap_carver_is_free(const ap_carver *c, uint32_t position);
/* What a slot of this value is called: its name, or one that no other value has. */
ap_name ap_carver_slot_name(const ap_carver *c, ap_value v);

/* A module and what its signature is in the whole; in the arena given to ap_carve. */
typedef struct ap_carved {
    ap_module *m;
    const ap_value *argument, *result; /* values of the whole, in the order of m's function */
} ap_carved;

/* Positions [first, last) of the function's block as a module of state normal; its time is that of the part's size, not
 * of the whole's. Inputs of the model come first among the arguments, in the model's order, then slots in the order in
 * which they are made; results likewise. An output that is no node's is the result of the stage with first == 0. */
void ap_carve(ap_carver *c, ap_arena *arena, uint32_t first, uint32_t last, ap_carved *out);

#endif
