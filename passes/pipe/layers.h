/* Layers: the body of a normal module, in order, cut into consecutive ranges of nodes between which a pipeline may be
 * cut (DESIGN §8; Alpa §5.2, with bytes and time in place of operator counts).
 *
 *     embed | block block ... block | head         layer 0 begins at node 0, layer L-1 ends before `ret`
 *           ^ a cut: values cross it
 *
 * What crosses a cut is what a pipeline would send there: results that are made before and read behind it. Arguments
 * and symbols cross nothing (whoever reads them has them), nor do results that are made again where they are read
 * (passes/pipe/carve.h). A result that is only returned crosses nothing either. */
#ifndef AP_PASSES_PIPE_LAYERS_H
#define AP_PASSES_PIPE_LAYERS_H

#include "passes/cluster.h"

enum { AP_LAYERS_MAX = 64 };

typedef struct ap_layers_options {
    const ap_cluster *cluster; /* times of nodes: its devices, unlike ones as the first */
    uint32_t count;            /* exactly so many, where there are so many nodes; 0: as many as blocks repeat */
    uint32_t least;            /* of an automatic count, where there are so many nodes */
    const uint32_t *stage;     /* or NULL; per node of the body: its pinned stage or AP_NONE. No layer has two */
    uint32_t nstages;          /* as pins count them, 0: any number. Every stage has a layer, where there are nodes */
} ap_layers_options;

typedef struct ap_layers {
    uint32_t n;
    uint32_t *first;     /* [n+1] positions in the body; first[n]: the terminator's */
    int64_t *ps;         /* [n] time on one device, whole batch */
    int64_t *bytes;      /* [n+1] that cross before layer l; 0 at both ends */
    ap_value *largest;   /* [n+1] the largest value that crosses, first on ties; AP_NONE: none does */
    uint32_t *ncrossing; /* [n+1] */
    ap_value **crossing; /* [n+1] values in order of their makers */
    uint32_t repeats;    /* how often the longest repeated block stands in the module, 1: none does */
} ap_layers;

/* Puts the nodes of the body into the order of a depth-first walk from the results, each node as late as it can stand
 * and branches one after the other, if fewer bytes then cross all cuts together. The module computes the same. */
void ap_layers_order(ap_ctx *ctx, ap_module *m);

/* Arrays in `arena`. Deterministic; AP_ERR_USAGE when pins of stages contradict the order of nodes. */
ap_status ap_layers_cut(ap_ctx *ctx, ap_arena *arena, const ap_module *m, const ap_layers_options *opt, ap_layers *out);

#endif
