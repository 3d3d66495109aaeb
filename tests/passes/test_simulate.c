/* The simulator against books of other kinds: the closed formula of equal stages, times of acts carried along the lists
 * (where no port is shared), the definition of fair shares, and a replay in steps of one picosecond (where ports are
 * shared). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/pipe/schedule.h"
#include "passes/pipe/simulate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STAGES = 8, WIRES = 16, PORTS = 8 };

typedef struct scene {
    ap_ctx *ctx;
    ap_wiring w;
    ap_name stage[STAGES];
    ap_wire wire[WIRES];
    ap_list list[STAGES];
    ap_sim_stage sim_stage[STAGES];
    ap_sim_wire sim_wire[WIRES];
    ap_sim_load load[WIRES][PORTS];
    ap_sim sim;
    ap_sim_result result;
} scene;

static uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static int64_t below(uint64_t *s, int64_t n)
{
    return (int64_t)(next_random(s) % (uint64_t)n);
}

static void scene_begin(scene *s, uint32_t nstages, int32_t microbatches)
{
    memset(s, 0, sizeof *s);
    s->ctx = ap_ctx_create();
    s->w = (ap_wiring){
        .ctx = s->ctx, .microbatches = microbatches, .nstages = nstages, .stage = s->stage, .wire = s->wire};
    for (uint32_t i = 0; i < nstages; i++) {
        s->stage[i] = ap_name_format(s->ctx, "stage%" PRIu32, i);
        s->sim_stage[i].nranks = 1;
    }
    s->sim = (ap_sim){.w = &s->w, .lists = s->list, .stage = s->sim_stage, .wire = s->sim_wire, .nports = PORTS};
}

/* A wire with a port of its own, unless `port` says which; `ps` on it. */
static void add_wire(scene *s, uint32_t from, uint32_t result, uint32_t to, int64_t latency, double ps)
{
    uint32_t i = s->w.nwires++;
    assert_true(i < WIRES);
    s->wire[i] = (ap_wire){.slot = ap_name_format(s->ctx, "v%" PRIu32 ".%" PRIu32, from, result),
                           .from = from,
                           .result = result,
                           .to = to,
                           .from_depth = 2,
                           .to_depth = 2};
    s->load[i][0] = (ap_sim_load){.port = i % PORTS, .ps = ps};
    s->sim_wire[i] =
        (ap_sim_wire){.latency_ps = latency, .nloads = ps > 0, .load = s->load[i], .from_bytes = 1000, .to_bytes = 100};
}

/* Microbatch k on a stage. */
static ap_sim_run run_of(const scene *s, uint32_t stage, int32_t k)
{
    const ap_sim_stage *x = &s->sim_stage[stage];
    int32_t whole = s->w.microbatches - x->nshort;
    return k < whole ? (ap_sim_run){x->compute_ps, x->exchange_ps} : x->shorter[k - whole];
}

static int64_t run_ps(const scene *s, uint32_t stage, int32_t k)
{
    ap_sim_run run = run_of(s, stage, k);
    return run.compute_ps + run.exchange_ps;
}

static int64_t simulate(scene *s, bool record)
{
    ap_schedule_forward(&s->w, &s->ctx->arena, s->list);
    if (ap_lists_check(&s->w, s->list) != AP_OK || ap_simulate(&s->sim, &s->ctx->arena, record, &s->result) != AP_OK)
        fail_msg("%s", ap_diag_str(s->ctx, &s->ctx->diags.at[0]));
    for (uint32_t i = 0; i < s->w.nstages; i++) {
        const ap_sim_share *x = &s->result.stage[i];
        assert_int_equal(x->compute_ps + x->exchange_ps + x->transfer_ps + x->bubble_ps, s->result.ps);
        assert_true(x->transfer_ps >= 0 && x->bubble_ps >= 0);
        int64_t compute = 0;
        for (int32_t k = 0; k < s->w.microbatches; k++)
            compute += run_of(s, i, k).compute_ps;
        assert_int_equal(x->compute_ps, compute);
    }
    assert_true(s->result.bubble >= 0 && s->result.bubble <= 1);
    return s->result.ps;
}

/* ---- formulas ---- */

/* A chain: fill and drain, and the slowest of all stages and wires for each further microbatch. */
static void test_chain(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    for (int round = 0; round < 2000; round++) {
        scene s;
        int32_t B = 1 + (int32_t)below(&seed, 12);
        scene_begin(&s, 1 + (uint32_t)below(&seed, STAGES), B);
        bool equal = round % 2;
        int64_t t = 1 + below(&seed, 100), most = 0, sum = 0;
        for (uint32_t i = 0; i < s.w.nstages; i++) {
            s.sim_stage[i].compute_ps = equal ? t : 1 + below(&seed, 100);
            s.sim_stage[i].exchange_ps = equal ? 0 : below(&seed, 20);
            int64_t run = s.sim_stage[i].compute_ps + s.sim_stage[i].exchange_ps;
            int64_t latency = below(&seed, 5), move = below(&seed, 120);
            sum += run;
            most = run > most ? run : most;
            if (i + 1 == s.w.nstages)
                break;
            add_wire(&s, i, 0, i + 1, latency, (double)move + 0.25);
            sum += latency + move;
            most = latency + move > most ? latency + move : most;
        }
        assert_int_equal(ap_schedule_depths(&s.w, s.wire), AP_OK);
        int64_t ps = simulate(&s, false);
        assert_int_equal(ps, sum + (B - 1) * most);
        if (equal && s.w.nwires == 0)
            assert_true(s.result.bubble == 0);
        ap_ctx_release(s.ctx);
    }
}

/* Without transfers the bubble of S equal stages is (S-1)/(B+S-1). */
static void test_bubble(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 4, 8);
    for (uint32_t i = 0; i < 4; i++) {
        s.sim_stage[i] = (ap_sim_stage){.nranks = 2, .compute_ps = 90, .exchange_ps = 10};
        if (i < 3)
            add_wire(&s, i, 0, i + 1, 0, 0);
    }
    assert_int_equal(simulate(&s, false), 1100);
    assert_true(fabs(s.result.bubble - 3.0 / 11) < 1e-12);
    assert_int_equal(s.result.exposed_ps, 80);
    ap_ctx_release(s.ctx);
}

/* One slot at an end serialises what lies on its two sides. */
static void test_one_slot(void **state)
{
    (void)state;
    for (int end = 0; end < 2; end++) {
        scene s;
        scene_begin(&s, 2, 10);
        s.sim_stage[0].compute_ps = s.sim_stage[1].compute_ps = 100;
        add_wire(&s, 0, 0, 1, 0, 40);
        *(end ? &s.wire[0].to_depth : &s.wire[0].from_depth) = 1;
        assert_int_equal(simulate(&s, false), 240 + 9 * 140);
        /* the waiting stage waits for the wire; behind one slot of the receiver the sender waits for nobody */
        assert_int_equal(s.result.stage[end].transfer_ps, end ? 400 : 9 * 40);
        ap_ctx_release(s.ctx);
    }
}

/* Receivers that copy: a stage takes its run and what it receives, one after the other. */
static void test_by_receiver(void **state)
{
    (void)state;
    uint64_t seed = 4242;
    int exact = 0;
    for (int round = 0; round < 1000; round++) {
        scene s;
        int32_t B = 1 + (int32_t)below(&seed, 12);
        scene_begin(&s, 1 + (uint32_t)below(&seed, STAGES), B);
        int64_t most = 0, sum = 0, in = 0;
        for (uint32_t i = 0; i < s.w.nstages; i++) {
            int64_t run = s.sim_stage[i].compute_ps = 1 + below(&seed, 100), move = below(&seed, 120);
            sum += run;
            most = run + in > most ? run + in : most;
            in = 0;
            if (i + 1 == s.w.nstages)
                break;
            add_wire(&s, i, 0, i + 1, 1, (double)move);
            s.sim_wire[i].by_receiver = true;
            sum += in = 1 + move;
        }
        assert_int_equal(ap_schedule_depths(&s.w, s.wire), AP_OK);
        /* the slowest stage holds up all; who takes a second microbatch along is late with the first by that much */
        int64_t ps = simulate(&s, false), bound = sum + (B - 1) * most, late = 0;
        for (uint32_t i = 0; i < s.w.nwires; i++)
            late += ap_sim_alone(&s.sim_wire[i]);
        assert_true(ps >= bound && ps <= bound + late);
        exact += ps == bound;
        for (uint32_t i = 0; i < s.w.nwires; i++)
            assert_true(s.result.stage[i + 1].transfer_ps >= B * ap_sim_alone(&s.sim_wire[i]));
        ap_ctx_release(s.ctx);
    }
    assert_true(exact > 250);
}

/* ---- without shared ports: times carried along the lists ---- */

/* When each act happens follows from when others did, in whatever order they are looked at. */
static int64_t carry_times(const scene *s)
{
    enum { B = 16 };
    static int64_t sent[WIRES][B], freed[WIRES][B], arrived[WIRES][B];
    int nsent[WIRES] = {0}, nfreed[WIRES] = {0}, narrived[WIRES] = {0};
    int64_t clock[STAGES] = {0}, end = 0;
    ap_list_walk walk[STAGES];
    bool has[STAGES];
    for (uint32_t i = 0; i < s->w.nstages; i++) {
        walk[i] = (ap_list_walk){.list = &s->list[i]};
        has[i] = ap_list_next(&walk[i]);
    }
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = 0; i < s->w.nstages; i++)
            for (bool wait = false; has[i] && !wait;) {
                const ap_act *a = walk[i].act;
                int k = walk[i].microbatch, w = (int)a->wire;
                int need = a->kind == AP_ACT_RECV ? k + 1 : a->kind == AP_ACT_CLAIM ? k + 1 - s->wire[w].from_depth : 0;
                wait = need > 0 && narrived[w] < need;
                if (wait)
                    break;
                if (need > 0 && arrived[w][need - 1] > clock[i])
                    clock[i] = arrived[w][need - 1];
                if (a->kind == AP_ACT_RUN)
                    clock[i] += run_ps(s, i, k);
                else if (a->kind == AP_ACT_SEND)
                    sent[w][nsent[w]++] = clock[i];
                else if (a->kind == AP_ACT_FREE)
                    freed[w][nfreed[w]++] = clock[i];
                end = clock[i] > end ? clock[i] : end;
                again = true;
                has[i] = ap_list_next(&walk[i]);
            }
        for (uint32_t w = 0; w < s->w.nwires; w++) {
            int k = narrived[w], back = k - s->wire[w].to_depth;
            if (k == nsent[w] || back >= nfreed[w])
                continue;
            int64_t t = sent[w][k];
            if (k && arrived[w][k - 1] > t)
                t = arrived[w][k - 1];
            if (back >= 0 && freed[w][back] > t)
                t = freed[w][back];
            arrived[w][narrived[w]++] = t + ap_sim_alone(&s->sim_wire[w]);
            again = true;
        }
    }
    return end;
}

/* Random wires forward; a result may go to several stages, with one depth. */
static void random_pipeline(scene *s, uint64_t *seed, uint32_t max_wires)
{
    scene_begin(s, 2 + (uint32_t)below(seed, STAGES - 1), 1 + (int32_t)below(seed, 9));
    for (uint32_t i = 0; i < s->w.nstages; i++)
        s->sim_stage[i] = (ap_sim_stage){.nranks = 1 + (int32_t)below(seed, 4),
                                         .compute_ps = below(seed, 60),
                                         .exchange_ps = below(seed, 20),
                                         .resident_bytes = below(seed, 5000),
                                         .working_bytes = below(seed, 500)};
    for (uint32_t i = 0; i < s->w.nstages && below(seed, 3) == 0; i++) {
        ap_sim_run *run = AP_NEW_ARRAY(&s->ctx->arena, ap_sim_run, 2);
        for (int k = 0; k < 2; k++)
            run[k] = (ap_sim_run){below(seed, 1 + s->sim_stage[i].compute_ps), below(seed, 20)};
        s->sim_stage[i].nshort = (int32_t)below(seed, s->w.microbatches < 2 ? s->w.microbatches + 1 : 3);
        s->sim_stage[i].shorter = run;
    }
    int32_t depth[STAGES];
    for (uint32_t i = 0; i < STAGES; i++)
        depth[i] = 1 + (int32_t)below(seed, 3);
    for (uint32_t from = 0; from + 1 < s->w.nstages; from++)
        for (uint32_t to = from + 1; to < s->w.nstages && s->w.nwires < max_wires; to++) {
            if (below(seed, 3) == 0)
                continue;
            add_wire(s, from, 0, to, below(seed, 10), (double)below(seed, 60) + 0.5);
            ap_wire *w = &s->wire[s->w.nwires - 1];
            w->from_depth = depth[from];
            w->to_depth = 1 + (int32_t)below(seed, 3);
        }
}

static int64_t bound_of(const scene *s)
{
    int64_t bound = 0;
    for (uint32_t i = 0; i < s->w.nstages; i++) {
        int64_t busy = 0;
        for (int32_t k = 0; k < s->w.microbatches; k++)
            busy += run_ps(s, i, k);
        bound = ap_max_i64(bound, busy);
    }
    for (uint32_t i = 0; i < s->w.nwires; i++)
        bound = ap_max_i64(bound, s->w.microbatches * ap_sim_alone(&s->sim_wire[i]));
    return bound;
}

static void test_carried(void **state)
{
    (void)state;
    uint64_t seed = 0x9e3779b97f4a7c15u;
    for (int round = 0; round < 4000; round++) {
        scene s;
        random_pipeline(&s, &seed, WIRES);
        for (uint32_t i = 0; i < s.w.nwires; i++) /* a port for each */
            s.load[i][0].port = i;
        s.sim.nports = WIRES;
        int64_t ps = simulate(&s, false);
        assert_int_equal(ps, carry_times(&s));
        assert_true(ps >= bound_of(&s));
        ap_ctx_release(s.ctx);
    }
}

/* ---- shared ports ---- */

static void random_loads(scene *s, uint64_t *seed)
{
    for (uint32_t i = 0; i < s->w.nwires; i++) {
        uint32_t n = 0;
        for (uint32_t p = 0; p < PORTS / 2; p++)
            if (below(seed, 3) == 0)
                s->load[i][n++] = (ap_sim_load){.port = p, .ps = (double)below(seed, 40)};
        s->sim_wire[i].nloads = n;
    }
    s->sim.nports = PORTS;
}

static double part_of(const ap_sim_wire *w, uint32_t port)
{
    double all = (double)(ap_sim_alone(w) - w->latency_ps), sum = 0;
    for (uint32_t j = 0; j < w->nloads; j++)
        sum += w->load[j].port == port ? w->load[j].ps : 0;
    return all > 0 ? sum / all : 0;
}

/* Max-min: no port is over-full, and who is slower than it could be has a full port on which nobody is faster. */
static void expect_fair(const scene *s, const bool *moving, const double *speed)
{
    double use[PORTS] = {0};
    for (uint32_t w = 0; w < s->w.nwires; w++)
        for (uint32_t p = 0; p < PORTS && moving[w]; p++)
            use[p] += part_of(&s->sim_wire[w], p) * speed[w];
    for (uint32_t p = 0; p < PORTS; p++)
        assert_true(use[p] <= 1 + 1e-6);
    for (uint32_t w = 0; w < s->w.nwires; w++) {
        if (!moving[w])
            continue;
        assert_true(speed[w] > 0 && speed[w] <= 1);
        bool held = speed[w] == 1;
        for (uint32_t p = 0; p < PORTS && !held; p++) {
            bool slowest = part_of(&s->sim_wire[w], p) > 0 && use[p] > 1 - 1e-6;
            for (uint32_t v = 0; v < s->w.nwires && slowest; v++)
                slowest = !moving[v] || part_of(&s->sim_wire[v], p) <= 0 || speed[v] <= speed[w] + 1e-9;
            held = slowest;
        }
        assert_true(held);
    }
}

static void test_fair(void **state)
{
    (void)state;
    uint64_t seed = 12345;
    int slowed = 0;
    for (int round = 0; round < 3000; round++) {
        scene s;
        random_pipeline(&s, &seed, WIRES);
        random_loads(&s, &seed);
        bool moving[WIRES];
        double speed[WIRES] = {0};
        for (uint32_t w = 0; w < s.w.nwires; w++)
            moving[w] = below(&seed, 4) > 0;
        ap_sim_ports *p = ap_sim_ports_create(&s.ctx->arena, s.sim_wire, s.w.nwires, s.sim.nports);
        for (uint32_t w = 0; w < s.w.nwires; w++)
            ap_sim_ports_speeds(p, ap_sim_ports_group(p, w), moving, speed);
        expect_fair(&s, moving, speed);
        for (uint32_t w = 0; w < s.w.nwires; w++)
            slowed += moving[w] && speed[w] < 1;
        ap_ctx_release(s.ctx);
    }
    assert_true(slowed > 1000);
}

/* A replay by the clock: every picosecond, who moves moves by its speed. Its times are whole picoseconds, so it lags
 * behind by at most one for each thing that happens after another. */
static int64_t tick(const scene *s, int64_t give_up)
{
    enum { RESTING, LATENCY, MOVE };
    int32_t sent[WIRES] = {0}, begun[WIRES] = {0}, arrived[WIRES] = {0}, freed[WIRES] = {0};
    int phase[WIRES] = {0};
    int64_t left_run[STAGES] = {0}, latency[WIRES] = {0};
    double left[WIRES] = {0}, speed[WIRES] = {0};
    bool moving[WIRES] = {0}, has[STAGES], fresh[STAGES] = {0};
    ap_list_walk walk[STAGES];
    ap_sim_ports *p = ap_sim_ports_create(&s->ctx->arena, s->sim_wire, s->w.nwires, s->sim.nports);
    for (uint32_t i = 0; i < s->w.nstages; i++) {
        walk[i] = (ap_list_walk){.list = &s->list[i]};
        has[i] = fresh[i] = ap_list_next(&walk[i]);
    }
    for (int64_t now = 0; now < give_up; now++) {
        for (bool any = true; any;) { /* all that takes no time */
            any = false;
            for (uint32_t i = 0; i < s->w.nstages; i++)
                while (has[i]) {
                    const ap_act *a = walk[i].act;
                    int32_t k = walk[i].microbatch;
                    uint32_t w = a->wire;
                    if (a->kind == AP_ACT_RUN && fresh[i])
                        left_run[i] = run_ps(s, i, k);
                    fresh[i] = false;
                    if ((a->kind == AP_ACT_RUN && left_run[i] > 0) || (a->kind == AP_ACT_RECV && arrived[w] <= k) ||
                        (a->kind == AP_ACT_CLAIM && arrived[w] <= k - s->wire[w].from_depth))
                        break;
                    sent[w] += a->kind == AP_ACT_SEND;
                    freed[w] += a->kind == AP_ACT_FREE;
                    any = true;
                    has[i] = fresh[i] = ap_list_next(&walk[i]);
                }
            for (uint32_t w = 0; w < s->w.nwires; w++) {
                if (phase[w] == RESTING && begun[w] < sent[w] && begun[w] - freed[w] < s->wire[w].to_depth) {
                    begun[w]++;
                    phase[w] = LATENCY;
                    latency[w] = s->sim_wire[w].latency_ps;
                    left[w] = (double)(ap_sim_alone(&s->sim_wire[w]) - latency[w]);
                    any = true;
                }
                if (phase[w] == LATENCY && latency[w] <= 0)
                    phase[w] = MOVE;
                if (phase[w] == MOVE && left[w] <= 1e-6) {
                    phase[w] = RESTING;
                    arrived[w]++;
                    any = true;
                }
                moving[w] = phase[w] == MOVE;
            }
        }
        bool all = true;
        for (uint32_t i = 0; i < s->w.nstages; i++)
            all = all && !has[i];
        if (all)
            return now;
        for (uint32_t w = 0; w < s->w.nwires; w++)
            ap_sim_ports_speeds(p, ap_sim_ports_group(p, w), moving, speed);
        for (uint32_t w = 0; w < s->w.nwires; w++) {
            latency[w]--;
            left[w] -= moving[w] ? speed[w] : 0;
        }
        for (uint32_t i = 0; i < s->w.nstages; i++)
            left_run[i]--;
    }
    return give_up;
}

static void test_shared(void **state)
{
    (void)state;
    uint64_t seed = 0x2545f4914f6cdd1du;
    int later = 0;
    for (int round = 0; round < 1500; round++) {
        scene s;
        random_pipeline(&s, &seed, 10);
        random_loads(&s, &seed);
        int64_t ps = simulate(&s, false), lag = 2 * (s.w.microbatches + s.w.nstages);
        int64_t ticks = tick(&s, 100000);
        if (ticks - ps > lag || ps - ticks > lag)
            fail_msg("simulator %" PRId64 ", by the clock %" PRId64, ps, ticks);
        assert_true(ps >= bound_of(&s));
        later += ps > carry_times(&s);
        ap_ctx_release(s.ctx);
    }
    assert_true(later > 100); /* ports do hold wires up */
}

static void test_two_on_a_port(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 4, 1);
    s.sim_stage[0].compute_ps = s.sim_stage[1].compute_ps = 10;
    add_wire(&s, 0, 0, 2, 5, 100);
    add_wire(&s, 1, 0, 3, 5, 60);
    s.load[1][0].port = 0;
    /* both at half speed from 15 to 135; then the longer one alone for its last 40 */
    assert_int_equal(simulate(&s, true), 175);
    assert_int_equal(s.result.stage[3].transfer_ps, 125);
    assert_int_equal(s.result.stage[2].transfer_ps, 165);
    assert_int_equal(s.result.stage[2].bubble_ps, 10);
    ap_ctx_release(s.ctx);
}

/* ---- what is recorded ---- */

/* Memory counted anew from the recorded events, at the end of each. */
static void check_memory(const scene *s, uint32_t stage)
{
    const ap_sim_share *share = &s->result.stage[stage];
    int64_t most = s->sim_stage[stage].resident_bytes, at = -1, last = most;
    for (uint32_t i = 0; i < s->result.memory.len; i++) {
        const ap_sim_memory *m = &s->result.memory.at[i];
        if (m->stage != stage)
            continue;
        assert_true(m->ps >= at && m->bytes >= s->sim_stage[stage].resident_bytes);
        at = m->ps;
        last = m->bytes;
        most = m->bytes > most ? m->bytes : most;
    }
    assert_int_equal(most, share->peak_bytes);
    assert_int_equal(last, s->sim_stage[stage].resident_bytes); /* every slot is empty in the end */
    int64_t limit = s->sim_stage[stage].resident_bytes + s->sim_stage[stage].working_bytes;
    bool own = false;
    for (uint32_t i = 0; i < s->w.nwires; i++) {
        limit += s->wire[i].to == stage ? s->wire[i].to_depth * s->sim_wire[i].to_bytes : 0;
        if (s->wire[i].from == stage && !own)
            limit += s->wire[i].from_depth * s->sim_wire[i].from_bytes;
        own = own || s->wire[i].from == stage;
    }
    assert_true(most <= limit);
    /* while it runs: its work, the slot it writes, all those it reads */
    int64_t least = s->sim_stage[stage].resident_bytes + s->sim_stage[stage].working_bytes;
    for (uint32_t i = 0; i < s->w.nwires; i++)
        least += s->wire[i].to == stage ? s->sim_wire[i].to_bytes : 0;
    assert_true(most >= least + (own ? 1000 : 0));
}

static void test_records(void **state)
{
    (void)state;
    uint64_t seed = 777;
    for (int round = 0; round < 500; round++) {
        scene s;
        random_pipeline(&s, &seed, WIRES);
        random_loads(&s, &seed);
        int64_t ps = simulate(&s, true);
        int runs = 0, transfers = 0;
        int64_t end = 0, waited[STAGES] = {0};
        for (uint32_t i = 0; i < s.result.events.len; i++) {
            const ap_sim_event *e = &s.result.events.at[i];
            assert_true(e->start_ps <= e->end_ps && e->end_ps >= end && e->end_ps <= ps);
            end = e->end_ps;
            runs += e->kind == AP_SIM_RUN;
            transfers += e->kind == AP_SIM_TRANSFER;
            if (e->kind == AP_SIM_WAIT)
                waited[e->stage] += e->end_ps - e->start_ps;
        }
        assert_int_equal(runs, s.w.microbatches * (int32_t)s.w.nstages);
        assert_int_equal(transfers, s.w.microbatches * (int32_t)s.w.nwires);
        for (uint32_t i = 0; i < s.w.nstages; i++) {
            assert_true(waited[i] >= s.result.stage[i].transfer_ps);
            check_memory(&s, i);
        }
        ap_sim_result again;
        assert_int_equal(ap_simulate(&s.sim, &s.ctx->arena, false, &again), AP_OK);
        assert_int_equal(again.ps, ps);
        assert_int_equal(again.events.len, 0);
        assert_memory_equal(again.stage, s.result.stage, s.w.nstages * sizeof *again.stage);
        ap_ctx_release(s.ctx);
    }
}

/* Periods that are taken at once: the same as event by event, for any number of microbatches. */
static void test_many(void **state)
{
    (void)state;
    uint64_t seed = 31337;
    for (int round = 0; round < 600; round++) {
        scene s;
        random_pipeline(&s, &seed, WIRES);
        if (round % 3)
            random_loads(&s, &seed);
        for (uint32_t i = 0; i < s.w.nwires; i++)
            s.sim_wire[i].by_receiver = round % 5 == 0 || below(&seed, 8) == 0;
        s.w.microbatches = 1 + (int32_t)below(&seed, 400);
        int64_t ps = simulate(&s, true);
        ap_sim_result all = s.result;
        assert_int_equal(simulate(&s, false), ps);
        assert_memory_equal(all.stage, s.result.stage, s.w.nstages * sizeof *all.stage);
        assert_int_equal(all.exposed_ps, s.result.exposed_ps);
        ap_ctx_release(s.ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain),       cmocka_unit_test(test_bubble), cmocka_unit_test(test_one_slot),
        cmocka_unit_test(test_carried),     cmocka_unit_test(test_fair),   cmocka_unit_test(test_many),
        cmocka_unit_test(test_by_receiver), cmocka_unit_test(test_shared), cmocka_unit_test(test_two_on_a_port),
        cmocka_unit_test(test_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
