/* help: for people, and the same tables for what is made from them when autopar is built: manual pages and the
 * completion of shells. `autopar help --tables PART [COMMAND]`, which no help mentions, prints
 *
 *     name       NAME and SYNOPSIS of a manual page, as scdoc reads it
 *     options    its OPTIONS; without a command, its COMMANDS
 *     rows       command TAB option TAB argument for completion; the option is : on the line of a command itself */
#include "driver/commands.h"

#include "ir/base/text.h"

#include <string.h>

static ap_status find_subject(ap_ctx *ctx, const ap_options *opt, ap_command *out)
{
    *out = AP_CMD_COUNT;
    if (!opt->subject)
        return AP_OK;
    for (int c = 0; c < AP_CMD_COUNT; c++)
        if (strcmp(ap_command_str((ap_command)c), opt->subject) == 0) {
            *out = (ap_command)c;
            return AP_OK;
        }
    return ap_fail(ctx, AP_ERR_USAGE, 0, "unknown command '%s' (see `autopar help`)", opt->subject);
}

/* scdoc reads marks in the text; a backslash makes any character plain. */
static void print_plain(const char *s)
{
    for (; *s; s++) {
        if (strchr("\\*_`[]|#~<>+-.", *s))
            putchar('\\');
        putchar(*s);
    }
}

static bool belongs(const ap_option_text *o, ap_command c)
{
    return o->help && o->commands >> c & 1;
}

static void print_name(ap_command c)
{
    if (c == AP_CMD_COUNT) {
        printf("# NAME\n\nautopar - automatic parallelization compiler for ONNX models\n\n"
               "# SYNOPSIS\n\n*autopar* _COMMAND_ [options]\n");
        return;
    }
    printf("# NAME\n\nautopar-%s - ", ap_command_str(c));
    print_plain(ap_command_help(c));
    printf("\n\n# SYNOPSIS\n\n*autopar %s* ", ap_command_str(c));
    print_plain(ap_command_subject(c));
    printf("%s[options]\n", *ap_command_subject(c) ? " " : "");
}

static void print_commands(void)
{
    printf("# COMMANDS\n\n");
    for (int c = 0; c < AP_CMD_COUNT; c++) {
        printf("*%s* ", ap_command_str((ap_command)c));
        print_plain(ap_command_subject((ap_command)c));
        printf("\n\t");
        print_plain(ap_command_help((ap_command)c));
        printf("\n\n");
    }
}

static void print_options(ap_command c)
{
    ap_option_text o;
    printf("# OPTIONS\n\n");
    for (uint32_t i = 0; ap_option_text_at(i, &o); i++) {
        if (!belongs(&o, c))
            continue;
        if (o.letter)
            printf("*-%c*, ", o.letter);
        printf("*--");
        print_plain(o.name);
        printf("*");
        if (o.argument) {
            putchar(' ');
            print_plain(o.argument);
        }
        printf("\n\t");
        print_plain(o.help);
        printf("\n\n");
    }
}

static void print_rows(void)
{
    ap_option_text o;
    for (int c = 0; c < AP_CMD_COUNT; c++) {
        printf("%s\t:\t%s\n", ap_command_str((ap_command)c), ap_command_subject((ap_command)c));
        for (uint32_t i = 0; ap_option_text_at(i, &o); i++) {
            if (!belongs(&o, (ap_command)c))
                continue;
            printf("%s\t--%s\t%s\n", ap_command_str((ap_command)c), o.name, o.argument ? o.argument : "");
            if (o.letter)
                printf("%s\t-%c\t%s\n", ap_command_str((ap_command)c), o.letter, o.argument ? o.argument : "");
        }
    }
}

ap_status ap_cmd_help(ap_ctx *ctx, const ap_options *opt)
{
    ap_command c = AP_CMD_COUNT;
    AP_TRY(find_subject(ctx, opt, &c));
    if (!opt->tables) {
        ap_help_print(stdout, c);
        return AP_OK;
    }
    if (strcmp(opt->tables, "name") == 0)
        print_name(c);
    else if (strcmp(opt->tables, "options") == 0 && c == AP_CMD_COUNT)
        print_commands();
    else if (strcmp(opt->tables, "options") == 0)
        print_options(c);
    else if (strcmp(opt->tables, "rows") == 0)
        print_rows();
    else
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--tables: name, options or rows, not '%s'", opt->tables);
    return AP_OK;
}
