/* SPDX-License-Identifier: MIT
 *
 * Where the tensors of a program lie. A safetensors file is eight bytes with the length of a JSON header, the header,
 * the data. What its __metadata__ says beside that makes three forms:
 *
 *   (nothing)                    all tensors are in the file, whole: what anyone may write
 *   "reference": "FILE.json"     FILE.json, beside it, names tensors that lie elsewhere: in the model that was compiled
 *   "devices": "N"               NAME.safetensors is empty; NAME.R.safetensors holds the parts of rank R
 *
 * Files are mapped; nothing in them is believed before it is checked. */
#include "weights_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_MAX = 100 << 20 };
static const char suffix[] = ".safetensors";

typedef struct mapping {
    char *path;
    const uint8_t *bytes;
    int64_t size;
} mapping;

struct aprt_weights {
    cJSON *header, *reference;
    mapping *map; /* the file itself, then those that it refers to */
    int32_t nmaps, devices;
    bool part;
    aprt_entry *entry; /* sorted by name */
    int64_t nentries;
};

bool aprt_json_whole(const cJSON *j, int64_t *out)
{
    if (!cJSON_IsNumber(j) || !(j->valuedouble >= 0 && j->valuedouble <= 0x1p53) ||
        j->valuedouble != (double)(int64_t)j->valuedouble)
        return false;
    *out = (int64_t)j->valuedouble;
    return true;
}

static int no_memory(aprt_failure *why)
{
    return aprt_fail(why, APRT_ERR_ENV, "out of memory for the list of weights");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const aprt_entry *)a)->name, ((const aprt_entry *)b)->name);
}

static int map_file(mapping *m, aprt_failure *why)
{
    int fd = open(m->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0)
        return aprt_fail(why, APRT_ERR_ENV, "%s: %s", m->path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return aprt_fail(why, APRT_ERR_ENV, "%s: not a regular file", m->path);
    }
    m->size = st.st_size;
    if (m->size > 0) {
        void *map = mmap(NULL, (size_t)m->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED) {
            close(fd);
            return aprt_fail(why, APRT_ERR_ENV, "%s: cannot be mapped: %s", m->path, strerror(errno));
        }
        m->bytes = map;
    }
    close(fd);
    return APRT_OK;
}

/* Maps `path`, once however often it is asked for. The name is taken over. */
static int add_mapping(aprt_weights *w, char *path, int32_t *out, aprt_failure *why)
{
    if (!path)
        return no_memory(why);
    for (*out = 0; *out < w->nmaps; ++*out)
        if (strcmp(w->map[*out].path, path) == 0) {
            free(path);
            return APRT_OK;
        }
    mapping *map = realloc(w->map, ((size_t)w->nmaps + 1) * sizeof *map);
    if (!map) {
        free(path);
        return no_memory(why);
    }
    w->map = map;
    map[w->nmaps] = (mapping){.path = path};
    return map_file(&map[w->nmaps++], why);
}

/* ---- the file itself ---- */

static int read_entry(const mapping *m, int64_t data, const cJSON *json, aprt_entry *out, aprt_failure *why)
{
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(json, "data_offsets");
    int64_t begin, end, size = m->size - data;
    if (!cJSON_IsObject(json) || !cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !aprt_json_whole(cJSON_GetArrayItem(offsets, 0), &begin) ||
        !aprt_json_whole(cJSON_GetArrayItem(offsets, 1), &end))
        return aprt_fail(why, APRT_ERR_ENV, "%s: tensor \"%.100s\": data_offsets are not two whole numbers", m->path,
                         json->string);
    if (begin > end || end > size)
        return aprt_fail(why, APRT_ERR_ENV, "%s: tensor \"%.100s\": bytes %lld to %lld are outside the %lld of data",
                         m->path, json->string, (long long)begin, (long long)end, (long long)size);
    *out = (aprt_entry){json->string, json, m->path, m->bytes + data + begin, end - begin, false};
    return APRT_OK;
}

static int add_entries(aprt_weights *w, int64_t data, aprt_failure *why)
{
    const cJSON *json;
    w->entry = calloc((size_t)cJSON_GetArraySize(w->header) + 1, sizeof *w->entry);
    if (!w->entry)
        return no_memory(why);
    cJSON_ArrayForEach(json, w->header)
    {
        if (strcmp(json->string, "__metadata__") == 0)
            continue;
        int status = read_entry(&w->map[0], data, json, &w->entry[w->nentries], why);
        if (status != APRT_OK)
            return status;
        w->nentries++;
    }
    return APRT_OK;
}

static int read_header(aprt_weights *w, aprt_failure *why)
{
    const mapping *m = &w->map[0];
    uint64_t length = 0;
    if (m->size < 8)
        return aprt_fail(why, APRT_ERR_ENV, "%s: not a safetensors file: %lld bytes", m->path, (long long)m->size);
    for (int i = 7; i >= 0; i--)
        length = length << 8 | m->bytes[i];
    if (length > HEADER_MAX || length > (uint64_t)m->size - 8)
        return aprt_fail(why, APRT_ERR_ENV, "%s: not a safetensors file, or cut short: header of %llu bytes", m->path,
                         (unsigned long long)length);
    w->header = cJSON_ParseWithLength((const char *)m->bytes + 8, (size_t)length);
    if (!cJSON_IsObject(w->header))
        return aprt_fail(why, APRT_ERR_ENV, "%s: the header is no JSON object", m->path);
    return add_entries(w, 8 + (int64_t)length, why);
}

/* ---- what it refers to ---- */

/* `name` beside the file `of`, unless it says itself where it is. */
static char *beside(const char *of, const char *name)
{
    const char *slash = *name == '/' ? NULL : strrchr(of, '/');
    size_t head = slash ? (size_t)(slash - of) + 1 : 0, tail = strlen(name) + 1;
    char *path = malloc(head + tail);
    if (path) {
        memcpy(path, of, head);
        memcpy(path + head, name, tail);
    }
    return path;
}

static int read_elsewhere(aprt_weights *w, const char *list, const cJSON *json, aprt_entry *out, aprt_failure *why)
{
    const cJSON *file = cJSON_GetObjectItemCaseSensitive(json, "file");
    int64_t offset, size, whole;
    int32_t at;
    if (!cJSON_IsObject(json) || !cJSON_IsString(file) || !*file->valuestring ||
        !aprt_json_whole(cJSON_GetObjectItemCaseSensitive(json, "offset"), &offset) ||
        !aprt_json_whole(cJSON_GetObjectItemCaseSensitive(json, "size"), &size) ||
        !aprt_json_whole(cJSON_GetObjectItemCaseSensitive(json, "file_size"), &whole))
        return aprt_fail(why, APRT_ERR_ENV, "%s: tensor \"%.100s\" has no file, offset, size and file_size", list,
                         json->string);
    int status = add_mapping(w, beside(list, file->valuestring), &at, why);
    if (status != APRT_OK)
        return status;
    const mapping *m = &w->map[at];
    if (m->size != whole)
        return aprt_fail(why, APRT_ERR_ENV, "%s has %lld bytes, it had %lld when the program was compiled", m->path,
                         (long long)m->size, (long long)whole);
    if (offset > m->size || size > m->size - offset)
        return aprt_fail(why, APRT_ERR_ENV, "%s: tensor \"%.100s\": %lld bytes at %lld are outside of %s", list,
                         json->string, (long long)size, (long long)offset, m->path);
    *out = (aprt_entry){json->string, json, m->path, m->bytes + offset, size, false};
    return APRT_OK;
}

static int add_elsewhere(aprt_weights *w, const char *list, aprt_failure *why)
{
    const cJSON *tensors = cJSON_GetObjectItemCaseSensitive(w->reference, "tensors"), *json;
    if (!cJSON_IsObject(tensors))
        return aprt_fail(why, APRT_ERR_ENV, "%s: not a JSON object with tensors", list);
    size_t n = (size_t)w->nentries + (size_t)cJSON_GetArraySize(tensors) + 1;
    aprt_entry *entry = realloc(w->entry, n * sizeof *entry);
    if (!entry)
        return no_memory(why);
    w->entry = entry;
    cJSON_ArrayForEach(json, tensors)
    {
        int status = read_elsewhere(w, list, json, &w->entry[w->nentries], why);
        if (status != APRT_OK)
            return status;
        w->nentries++;
    }
    return APRT_OK;
}

static int read_reference(aprt_weights *w, const char *name, aprt_failure *why)
{
    char *list = strchr(name, '/') || !*name ? NULL : beside(w->map[0].path, name);
    uint8_t *text = NULL;
    size_t size = 0;
    if (!list)
        return aprt_fail(why, APRT_ERR_ENV, "%s: \"%.100s\" is not a file beside it", w->map[0].path, name);
    int status = aprt_file_read(list, &text, &size, why);
    if (status == APRT_OK) {
        w->reference = cJSON_ParseWithLength((const char *)text, size);
        status = add_elsewhere(w, list, why);
    }
    free(text);
    free(list);
    return status;
}

static int read_metadata(aprt_weights *w, aprt_failure *why)
{
    const cJSON *meta = cJSON_GetObjectItemCaseSensitive(w->header, "__metadata__");
    const cJSON *reference = cJSON_GetObjectItemCaseSensitive(meta, "reference");
    const cJSON *devices = cJSON_GetObjectItemCaseSensitive(meta, "devices");
    if (cJSON_IsString(devices)) {
        long n = strtol(devices->valuestring, NULL, 10);
        if (n < 1 || n > APRT_MAX_RANKS)
            return aprt_fail(why, APRT_ERR_ENV, "%s: parts for \"%.20s\" devices", w->map[0].path,
                             devices->valuestring);
        w->devices = (int32_t)n;
    }
    return cJSON_IsString(reference) ? read_reference(w, reference->valuestring, why) : APRT_OK;
}

static int sort_entries(aprt_weights *w, aprt_failure *why)
{
    qsort(w->entry, (size_t)w->nentries, sizeof *w->entry, by_name);
    for (int64_t i = 1; i < w->nentries; i++)
        if (by_name(&w->entry[i - 1], &w->entry[i]) == 0)
            return aprt_fail(why, APRT_ERR_ENV, "%s: tensor \"%.100s\" is there twice", w->map[0].path,
                             w->entry[i].name);
    return APRT_OK;
}

int aprt_weights_open(const char *path, aprt_weights **out, aprt_failure *why)
{
    aprt_weights *w = calloc(1, sizeof *w);
    int32_t at;
    *out = NULL;
    if (!w)
        return no_memory(why);
    int status = add_mapping(w, strdup(path), &at, why);
    if (status == APRT_OK)
        status = read_header(w, why);
    if (status == APRT_OK)
        status = read_metadata(w, why);
    if (status == APRT_OK)
        status = sort_entries(w, why);
    if (status != APRT_OK) {
        aprt_weights_close(w);
        return status;
    }
    *out = w;
    return APRT_OK;
}

int aprt_weights_hold(uint32_t n, const aprt_tensor_source *source, aprt_weights **out, aprt_failure *why)
{
    aprt_weights *w = calloc(1, sizeof *w);
    *out = w;
    if (!w)
        return no_memory(why);
    w->entry = calloc((size_t)n + 1, sizeof *w->entry);
    w->map = calloc(1, sizeof *w->map);
    if (w->map)
        w->map->path = strdup("the model");
    w->nmaps = w->map != NULL;
    if (!w->entry || !w->map || !w->map->path)
        return no_memory(why);
    for (; w->nentries < n; w->nentries++) {
        const aprt_tensor_source *s = &source[w->nentries];
        w->entry[w->nentries] =
            (aprt_entry){.name = s->name, .path = w->map->path, .bytes = s->bytes, .size = s->size, .kept = !s->mapped};
    }
    return sort_entries(w, why);
}

int aprt_weights_enter(aprt_weights *w, int32_t rank, int32_t nranks, aprt_weights **out, aprt_failure *why)
{
    *out = w;
    if (w->devices == 0)
        return APRT_OK;
    const char *path = w->map[0].path;
    size_t stem = strlen(path), tail = sizeof suffix - 1;
    *out = NULL;
    if (w->devices != nranks)
        return aprt_fail(why, APRT_ERR_ENV, "%s: parts for %d devices, the program has %d", path, w->devices, nranks);
    if (stem > tail && strcmp(path + stem - tail, suffix) == 0)
        stem -= tail;
    char *part = malloc(stem + 32);
    if (!part)
        return no_memory(why);
    snprintf(part, stem + 32, "%.*s.%d%s", (int)stem, path, rank, suffix);
    int status = aprt_weights_open(part, out, why);
    free(part);
    if (status == APRT_OK)
        (*out)->part = true;
    return status;
}

void aprt_weights_leave(aprt_weights *w, aprt_weights *entered)
{
    if (entered != w)
        aprt_weights_close(entered);
}

void aprt_weights_close(aprt_weights *w)
{
    if (!w)
        return;
    for (int32_t i = 0; i < w->nmaps; i++) {
        if (w->map[i].bytes)
            munmap((void *)(uintptr_t)w->map[i].bytes, (size_t)w->map[i].size);
        free(w->map[i].path);
    }
    free(w->map);
    cJSON_Delete(w->header);
    cJSON_Delete(w->reference);
    free(w->entry);
    free(w);
}

const aprt_entry *aprt_weights_find(const aprt_weights *w, const char *name)
{
    aprt_entry key = {.name = name};
    return w->nentries ? bsearch(&key, w->entry, (size_t)w->nentries, sizeof key, by_name) : NULL;
}

bool aprt_weights_sliced(const aprt_weights *w)
{
    return w->part;
}

const char *aprt_weights_path(const aprt_weights *w)
{
    return w->map[0].path;
}
