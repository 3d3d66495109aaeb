/* State *local* of a pipeline: one ap_local per stage and what moves between them (DESIGN §8, §10).
 *
 * A *slot* is a boundary value in device memory: on each rank of a stage its shard for one microbatch, compact and
 * row-major. A *channel* joins the slots of a value on two stages; its *pieces* say which box of which rank's shard
 * goes where. The slots of microbatch k are number k mod depth of each side. */
#ifndef AP_IR_PROGRAM_H
#define AP_IR_PROGRAM_H

#include "ir/local.h"

/* A box of the shard of src_rank, and where it goes in that of dst_rank; ranks of the program, offsets and strides in
 * elements of one slot, major dimension first. */
typedef struct ap_piece {
    int32_t src_rank, dst_rank;
    uint8_t ndims;
    int64_t extent[AP_MAX_LOOPS];
    int64_t src_offset, src_stride[AP_MAX_LOOPS];
    int64_t dst_offset, dst_stride[AP_MAX_LOOPS];
} ap_piece;

#endif
