/* Padding: extents that the devices do not divide get a larger physical extent, so that they can be split all the same
 * (DESIGN §5). What is physical follows from the logical extent and the mesh alone, so all values that have an extent
 * in common agree about it. */
#ifndef AP_IR_PHYSICAL_H
#define AP_IR_PHYSICAL_H

#include "ir/mesh.h"
#include "ir/module.h"

/* Of the products of some axes, largest first, the first whose least multiple is at most 9/8 of the extent says what
 * the extent is padded to (time is none of them). Where no product does, or with `force`, it is the product of all
 * axes: a split that wastes much is possible, and its price says so. Extents below 2 stay as they are. */
int64_t ap_physical_extent(const ap_mesh_info *mesh, int64_t logical, bool force);

/* With time, that of the batch: so many equal microbatches, each of as few entries as can be, or a little more (up to
 * 9/8) so that some of the ranks divide them; with `force`, so that as many of the ranks divide them as can. The last
 * microbatch may be short, but is never empty because of that. */
int64_t ap_physical_batch(const ap_mesh_info *mesh, int64_t logical, bool force);

/* Microbatches are equal, so a batch fills only some numbers of them (8 in 5 are 2 each, and the last has none). The
 * largest that it does fill, of at most `microbatches`, of which there are at most `batch`. */
int32_t ap_microbatches_filled(int64_t batch, int32_t microbatches);

/* Sets the physical extents in all types of the module. `batch`: NULL without time, else per value which of its factors
 * are batches (bit f); their physical extent is `batch_extent`, 0: ap_physical_batch. Without `force`, few parts that
 * something takes one by one (the 3 of a fused projection) stay as they are: nobody splits them, and a plan is easier
 * to read. */
void ap_module_set_physical(ap_module *m, const ap_mesh_info *mesh, bool force, const uint16_t *batch,
                            int64_t batch_extent);

/* After planning: extents that no value splits lose their padding again, so that the plan shows what it uses. */
void ap_module_trim_physical(ap_module *m);

/* All types of the module's values and of its functions' results, to be set again after a change of extents that was
 * none for the better. */
ap_type *ap_module_types(const ap_module *m, ap_arena *arena);
void ap_module_set_types(ap_module *m, const ap_type *types);

#endif
