/* A plan's numbers from the tables and its placement alone, in 128-bit integers, and whether it is a plan at all.
 * Shares nothing with the search but the price of a transfer. */
#include "passes/stage/dp.h"

typedef struct walk {
    __int128 key, time, resident;
    int64_t peak;
    bool there;
} walk;

static bool better(const walk *a, const walk *b)
{
    if (!b->there || !a->there)
        return a->there;
    if (a->key != b->key)
        return a->key < b->key;
    if (a->time != b->time)
        return a->time < b->time;
    return a->resident != b->resident ? a->resident < b->resident : a->peak < b->peak;
}

/* From every label before a layer to one label after it. */
static walk best_walk(const ap_stages_problem *p, uint32_t layer, uint32_t choice, const walk *from, uint32_t out)
{
    const ap_stages_table *t = &p->table[(size_t)layer * p->nchoices + choice];
    uint32_t nin = p->nlabels[(size_t)layer * p->nchoices + choice];
    uint32_t nout = p->nlabels[(size_t)(layer + 1) * p->nchoices + choice];
    walk best = {.there = false};
    for (uint32_t i = 0; i < nin; i++) {
        size_t at = (size_t)i * nout + out;
        if (!from[i].there || t->time[at] == AP_STAGES_NONE)
            continue;
        int64_t resident = t->resident ? t->resident[at] : 0, peak = t->peak ? t->peak[at] : 0;
        walk w = from[i];
        w.time += t->time[at];
        w.key += t->time[at] + (((__int128)resident * p->choice[choice].price) >> 20);
        w.resident += resident;
        w.peak = peak > w.peak ? peak : w.peak;
        if (better(&w, &best))
            best = w;
    }
    return best;
}

static walk walk_stage(ap_arena *scratch, const ap_stages_problem *p, const ap_stages_pick *s)
{
    const uint32_t *n = p->nlabels + s->choice;
    walk *at = AP_NEW_ARRAY(scratch, walk, n[(size_t)s->first * p->nchoices] + 1);
    at[s->in].there = true;
    for (uint32_t l = s->first; l < s->last; l++) {
        uint32_t nout = n[(size_t)(l + 1) * p->nchoices];
        walk *next = AP_NEW_ARRAY(scratch, walk, nout + 1);
        for (uint32_t q = 0; q < nout; q++)
            next[q] = best_walk(p, l, s->choice, at, q);
        at = next;
    }
    return at[s->out];
}

static int64_t slots(const ap_stages_problem *p, uint32_t boundary, uint32_t choice, uint32_t label)
{
    const int64_t *s = p->slot ? p->slot[(size_t)boundary * p->nchoices + choice] : NULL;
    return s ? s[label] : 0;
}

static const char *check_pins(const ap_stages_problem *p, const ap_stages_plan *plan)
{
    if (p->nstages > 0 && plan->nstages != p->nstages)
        return "another number of stages than asked for";
    for (uint32_t i = 0; i < plan->nstages; i++) {
        const ap_stages_pick *s = &plan->stage[i];
        for (uint32_t l = s->first; l < s->last; l++) {
            if (p->stage_of && p->stage_of[l] != AP_NONE && p->stage_of[l] != i)
                return "a layer is in another stage than asked for";
            if (l > s->first && p->cut && p->cut[l] > 0)
                return "stages do not meet where they must";
        }
        if (s->first > 0 && p->cut && p->cut[s->first] < 0)
            return "stages meet where they must not";
    }
    return NULL;
}

/* Marks the devices of a stage; they must be free, and of one host or of whole hosts. */
static const char *check_devices(const ap_stages_problem *p, const ap_stages_pick *s, uint8_t *busy)
{
    const ap_stages_choice *c = &p->choice[s->choice];
    int32_t host = p->group[c->group].devices, n = c->hosts * c->devices, rank = s->device;
    if (s->device < 0 || s->device + n > p->group[c->group].hosts * host)
        return "a stage lies outside its group";
    if (c->hosts == 1 ? s->device / host != (s->device + n - 1) / host : s->device % host != 0)
        return "a stage straddles hosts";
    for (uint32_t g = 0; g < c->group; g++)
        rank += p->group[g].hosts * p->group[g].devices;
    if (rank != s->rank)
        return "device and rank of a stage disagree";
    for (int32_t i = 0; i < n; i++) {
        if (busy[rank + i])
            return "two stages share a device";
        busy[rank + i] = 1;
    }
    return NULL;
}

static const char *check_shape(ap_arena *scratch, const ap_stages_problem *p, const ap_stages_plan *plan, bool idle)
{
    size_t devices = 0;
    for (uint32_t g = 0; g < p->ngroups; g++)
        devices += (size_t)p->group[g].hosts * (size_t)p->group[g].devices;
    uint8_t *busy = AP_NEW_ARRAY(scratch, uint8_t, devices);
    uint32_t next = 0;
    for (uint32_t i = 0; i < plan->nstages; i++) {
        const ap_stages_pick *s = &plan->stage[i];
        if (s->first != next || s->last <= s->first || s->last > p->nlayers || s->choice >= p->nchoices)
            return "stages do not follow each other";
        next = s->last;
        const char *wrong = check_devices(p, s, busy);
        if (wrong)
            return wrong;
    }
    if (next != p->nlayers)
        return "layers are missing";
    for (size_t i = 0; i < devices && !idle; i++)
        if (!busy[i])
            return "a device has no work";
    return check_pins(p, plan);
}

/* Time, memory and transfer of stage i. */
static const char *evaluate_stage(ap_arena *scratch, const ap_stages_problem *p, ap_stages_plan *plan, uint32_t i)
{
    ap_stages_pick *s = &plan->stage[i];
    if (s->in >= p->nlabels[(size_t)s->first * p->nchoices + s->choice] ||
        s->out >= p->nlabels[(size_t)s->last * p->nchoices + s->choice])
        return "a label is out of range";
    walk w = walk_stage(scratch, p, s);
    if (!w.there || w.time > INT64_MAX)
        return "a stage is not possible";
    __int128 memory = w.resident + w.peak + (__int128)p->in_depth * slots(p, s->first, s->choice, s->in) +
                      (__int128)p->out_depth * slots(p, s->last, s->choice, s->out);
    if (memory > p->group[p->choice[s->choice].group].capacity)
        return "a stage does not fit into memory";
    s->time = (int64_t)w.time;
    s->memory = (int64_t)memory;
    s->transfer = 0;
    if (i + 1 < plan->nstages)
        s->transfer = ap_stages_price(p, s->last, s->choice, s->out, s[1].choice, s[1].in, ap_stages_near(p, s, s + 1));
    return s->transfer == AP_STAGES_NONE ? "a transfer is not possible" : NULL;
}

const char *ap_stages_evaluate(ap_arena *scratch, const ap_stages_problem *p, ap_stages_plan *plan, bool idle)
{
    const char *wrong = check_shape(scratch, p, plan, idle);
    __int128 sum = 0;
    int64_t bottleneck = 0;
    for (uint32_t i = 0; !wrong && i < plan->nstages; i++) {
        wrong = evaluate_stage(scratch, p, plan, i);
        const ap_stages_pick *s = &plan->stage[i];
        sum += (__int128)s->time + s->transfer;
        int64_t longer = s->time > s->transfer ? s->time : s->transfer;
        bottleneck = longer > bottleneck ? longer : bottleneck;
    }
    if (wrong)
        return wrong;
    __int128 total = sum + (__int128)bottleneck * (p->microbatches - 1);
    if (total > INT64_MAX)
        return "the plan takes over 106 days";
    plan->sum = (int64_t)sum;
    plan->bottleneck = bottleneck;
    plan->total = (int64_t)total;
    return NULL;
}
