/* State *local* of a pipeline: one ap_local per stage and what moves between them (DESIGN §8, §10). This record is all
 * that a back end reads.
 *
 *     program @bert ranks 4 microbatches 2
 *     input "x" f32[8,32]
 *     output "y" f32[8,32]
 *     stage {
 *     local @stage0 ranks 2 time mb=2 axes [x=2 stride 1] arena 1024 params 4096
 *     input "x" f32[8,32]
 *     output slot "h" f32[64]
 *     ...
 *     }
 *     stage { local @stage1 ranks 2 from 2 ... }
 *     channel %h f32 @stage0 output 0 at 1024 bytes 256 depth 2 -> @stage1 input 0 at 512 bytes 256 depth 2 {
 *       piece 0 -> 2 box [2,32] from 0[32,1] to 0[32,1]
 *     }
 *     list @stage0 { ... }
 *
 * A *slot* is a boundary value in device memory: on each rank of a stage its shard for one microbatch, compact and
 * row-major. Slots lie in the arena behind the stage's own values; those of one value lie behind each other, and
 * microbatch k is in number k mod depth. A *channel* joins the slots of a value on two stages; channels of the same
 * value to several stages share its slots at the source. The *pieces* of a channel say which box of which rank's shard
 * goes where. A program of one stage has no channels. */
#ifndef AP_IR_PROGRAM_H
#define AP_IR_PROGRAM_H

#include "ir/list.h"
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

typedef struct ap_channel {
    ap_name name; /* of the slot */
    ap_dtype dtype;
    uint32_t src_stage, dst_stage;
    uint32_t src_output, dst_input; /* ports of the stages */
    int64_t src_at, dst_at;         /* byte of the arena where slot 0 begins */
    int64_t src_bytes, dst_bytes;   /* from one slot to the next */
    int32_t src_depth, dst_depth;
    bool padded; /* some shard at the destination has places that no element fills */
    uint32_t npieces;
    ap_piece *piece;
} ap_channel;

typedef struct ap_program {
    ap_ctx *ctx;
    ap_name name;
    int32_t nranks, microbatches;
    AP_VEC(ap_port) inputs; /* of the model, in its order; the stages have those that they read and write, by name */
    AP_VEC(ap_port) outputs;
    AP_VEC(ap_local *) stages; /* kernels of one name are the same in all of them */
    AP_VEC(ap_channel) channels;
    AP_VEC(ap_list) lists; /* one per stage */
    /* When things happen in a run, as predicted, in picoseconds; for traces, and not in the text. NULL: not known. */
    const int64_t *run_ps;  /* [stage * microbatches + k]: when the stage runs microbatch k */
    const int64_t *move_ps; /* [2 * (channel * microbatches + k)]: when it is on its way: begin, end */
} ap_program;

/* One stage: its own name, ports and microbatches; the list is a loop of runs. `p` is borrowed. */
ap_program *ap_program_of_local(ap_local *p);

/* Bytes of the arena of each rank of a stage: values, then slots. */
int64_t ap_program_arena_bytes(const ap_program *p, uint32_t stage);
/* The port of the program that input or output `port` of a stage is: by name, of a single stage by number. AP_NONE for
 * a slot, or when there is none. */
uint32_t ap_program_port(const ap_program *p, uint32_t stage, bool output, uint32_t port);
/* Numbers the ranks anew, in their order, without those that no stage has: devices of the cluster that the plan leaves
 * without work. What asks where in the cluster a rank is must be answered before. */
void ap_program_close_ranks(ap_program *p);
/* For lists: channels are the wires. Arrays in `arena`. */
ap_wiring ap_program_wiring(const ap_program *p, ap_arena *arena);

void ap_program_print(const ap_program *p, ap_text *out); /* ap_program_of_local: as the local program */
/* Reads a program, or a local program as one of a single stage. */
ap_status ap_program_parse(ap_ctx *ctx, const char *name, const char *text, size_t size, ap_program **out);

/* Stages verify; their ranks partition those of the program; ports are those of the program; slots lie apart from
 * values and from each other; no piece leaves a slot, no element of a slot at the destination is filled twice, and each
 * once unless the channel is padded; every slot has its channel; every element of an output is written by one rank;
 * kernels of one name are one; lists do what they should. All violations are reported. */
ap_status ap_program_verify(ap_program *p);

/* All ranks and microbatches as the lists say: inputs and outputs as in ap_eval_func. */
ap_status ap_program_eval(const ap_program *p, ap_arena *arena, const ap_tensor *inputs, ap_tensor *outputs);

#endif
