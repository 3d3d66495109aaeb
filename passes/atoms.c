/* Union-find over atoms with cuts and an undo log. No path compression, so that undoing stays simple;
 * union by age keeps chains short enough. */
#include "passes/atoms.h"

ap_atom ap_atoms_make(ap_atoms *a, int64_t extent)
{
    ap_atom id = a->at.len;
    ap_atom_info atom = {.extent = extent, .same = id, .next = id, .parent = AP_NONE, .frozen = extent < 2};
    atom.child[0] = atom.child[1] = AP_NONE;
    ap_vec_push(a->arena, &a->at, atom);
    return id;
}

static ap_atom root(const ap_atoms *a, ap_atom x)
{
    while (a->at.at[x].same != x)
        x = a->at.at[x].same;
    return x;
}

static ap_atom_info *change(ap_atoms *a, ap_atom x)
{
    ap_vec_push(a->arena, &a->log, (ap_atom_undo){.atom = x, .before = a->at.at[x]});
    return &a->at.at[x];
}

uint32_t ap_atoms_mark(const ap_atoms *a)
{
    return a->log.len;
}

void ap_atoms_rollback(ap_atoms *a, uint32_t mark)
{
    while (a->log.len > mark) {
        ap_atom_undo *u = &a->log.at[--a->log.len];
        a->at.at[u->atom] = u->before;
    }
}

int64_t ap_atoms_extent(const ap_atoms *a, ap_atom x)
{
    return a->at.at[root(a, x)].extent;
}
void ap_atoms_freeze(ap_atoms *a, ap_atom x)
{
    change(a, root(a, x))->frozen = true;
}

bool ap_atoms_leaves(const ap_atoms *a, ap_atom x, ap_atom_seq *out)
{
    x = root(a, x);
    const ap_atom_info *i = &a->at.at[x];
    if (i->child[0] != AP_NONE)
        return ap_atoms_leaves(a, i->child[0], out) && ap_atoms_leaves(a, i->child[1], out);
    if (out->n == (int)(sizeof out->at / sizeof *out->at))
        return false;
    out->at[out->n++] = x;
    return true;
}

static bool expand(const ap_atoms *a, const ap_atom_seq *x, ap_atom_seq *out)
{
    out->n = 0;
    for (int i = 0; i < x->n; i++)
        if (!ap_atoms_leaves(a, x->at[i], out))
            return false;
    return true;
}

/* x: uncut root. Afterwards its leaves are [extent/minor, minor]. */
static bool cut(ap_atoms *a, ap_atom x, int64_t minor)
{
    int64_t extent = a->at.at[x].extent;
    if (a->at.at[x].frozen || minor <= 1 || minor >= extent || extent % minor != 0)
        return false;
    ap_atom hi = ap_atoms_make(a, extent / minor), lo = ap_atoms_make(a, minor);
    a->at.at[hi].parent = a->at.at[lo].parent = x;
    ap_atom_info *i = change(a, x);
    i->child[0] = hi;
    i->child[1] = lo;
    return true;
}

/* Both uncut roots of equal extent. */
static void join(ap_atoms *a, ap_atom x, ap_atom y)
{
    if (x == y)
        return;
    if (x > y) {
        ap_atom t = x;
        x = y;
        y = t;
    }
    if (a->at.at[y].frozen && !a->at.at[x].frozen)
        change(a, x)->frozen = true;
    ap_atom_info *first = change(a, x), *second = change(a, y);
    ap_atom next = first->next;
    first->next = second->next; /* two rings become one */
    second->next = next;
    second->same = x;
}

/* Walks both runs from the minor end; each step joins two equal leaves or cuts the larger. The runs are expanded anew
 * after every change because a cut may touch both. */
bool ap_atoms_unify(ap_atoms *a, const ap_atom_seq *x, const ap_atom_seq *y)
{
    int done = 0; /* leaves already equal at the minor end */
    ap_atom_seq p, q;
    while (true) {
        if (!expand(a, x, &p) || !expand(a, y, &q))
            return false;
        if (done == p.n || done == q.n)
            return p.n == q.n;
        ap_atom u = p.at[p.n - 1 - done], v = q.at[q.n - 1 - done];
        int64_t eu = a->at.at[u].extent, ev = a->at.at[v].extent;
        if (eu == ev) {
            join(a, u, v);
            done++;
        } else if (eu > ev ? !cut(a, u, ev) : !cut(a, v, eu)) {
            return false;
        }
    }
}

bool ap_atoms_cut_at(ap_atoms *a, const ap_atom_seq *x, int64_t minor, ap_atom_seq *out_major, ap_atom_seq *out_minor)
{
    while (true) {
        ap_atom_seq p;
        if (!expand(a, x, &p))
            return false;
        int64_t rest = minor;
        int i = p.n;
        while (i > 0 && rest > 1 && rest % a->at.at[p.at[i - 1]].extent == 0)
            rest /= a->at.at[p.at[--i]].extent;
        if (rest == 1) {
            out_major->n = i;
            out_minor->n = p.n - i;
            for (int k = 0; k < p.n; k++)
                *(k < i ? &out_major->at[k] : &out_minor->at[k - i]) = p.at[k];
            return true;
        }
        if (i == 0 || !cut(a, p.at[i - 1], rest))
            return false;
    }
}
