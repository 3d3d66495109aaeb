/* Atoms: the factors-to-be of refinement (DESIGN §5). Each dimension of each value is a list of atoms; atoms that
 * must be cut alike are one by union-find; a cut atom stands for its children. Every change is logged, so that a
 * request that turns out impossible is taken back whole.
 *
 *     [B,S,768] --reshape--> [B,S,12,64]      768 -> 12 64, 12 ~ the third, 64 ~ the fourth dimension
 */
#ifndef AP_PASSES_ATOMS_H
#define AP_PASSES_ATOMS_H

#include "ir/module.h"

typedef uint32_t ap_atom; /* AP_NONE for none */

typedef struct ap_atom_info {
    int64_t extent;
    ap_atom same;     /* union-find: itself when root */
    ap_atom next;     /* ring of all atoms that are one with it */
    ap_atom parent;   /* whose child it is, or AP_NONE */
    ap_atom child[2]; /* major, minor; AP_NONE while uncut */
    bool frozen;      /* must stay one factor */
} ap_atom_info;

typedef struct ap_atom_undo {
    ap_atom atom;
    ap_atom_info before;
} ap_atom_undo;

typedef struct ap_atoms {
    ap_arena *arena;
    AP_VEC(ap_atom_info) at;
    AP_VEC(ap_atom_undo) log;
} ap_atoms;

/* A run of atoms, major first. */
typedef struct ap_atom_seq {
    int n;
    ap_atom at[AP_MAX_FACTORS * 2];
} ap_atom_seq;

ap_atom ap_atoms_make(ap_atoms *a, int64_t extent);
int64_t ap_atoms_extent(const ap_atoms *a, ap_atom x);
void ap_atoms_freeze(ap_atoms *a, ap_atom x); /* x must be uncut */

/* Appends the uncut atoms that x stands for; false when `out` is full. */
bool ap_atoms_leaves(const ap_atoms *a, ap_atom x, ap_atom_seq *out);

/* Makes two runs of equal product stand for the same leaves, by cutting and joining; false when extents do not divide,
 * an atom is frozen or there are too many. On false the caller rolls back. */
bool ap_atoms_unify(ap_atoms *a, const ap_atom_seq *x, const ap_atom_seq *y);

/* Cuts so that a suffix of the leaves of `x` has product `minor`; gives the leaves before and after. */
bool ap_atoms_cut_at(ap_atoms *a, const ap_atom_seq *x, int64_t minor, ap_atom_seq *out_major, ap_atom_seq *out_minor);

uint32_t ap_atoms_mark(const ap_atoms *a);
void ap_atoms_rollback(ap_atoms *a, uint32_t mark);

#endif
