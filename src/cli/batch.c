/* batch.c - the command batch: a file of prompts becomes a folder of pictures. */
/* SPDX-License-Identifier: MIT */
#include "commands.h"
#include "say.h"

int batch_run(struct request *request, struct arguments *arguments, int argc, char **argv)
{
    (void)request, (void)arguments, (void)argc, (void)argv;
    return EXIT_FAILED;
}
int merge_run(struct request *request, struct arguments *arguments, int argc, char **argv)
{
    return batch_run(request, arguments, argc, argv);
}
int sheet_run(struct request *request, struct arguments *arguments, int argc, char **argv)
{
    return batch_run(request, arguments, argc, argv);
}
