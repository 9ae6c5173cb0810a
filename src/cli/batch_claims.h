/* batch_claims.h - who works on what: files that only one process can create. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_BATCH_CLAIMS_H
#define CLI_BATCH_CLAIMS_H

#include "darkroom.h"

/*
 * A claim on NAME is the file FOLDER/NAME.0, created with O_EXCL, which every file system, NFS
 * included, grants to one process only. It holds one line: host, boot id, pid namespace, pid, start
 * time of the process and a number of its own. A thread touches the files it holds, so that a
 * living claim changes its time stamp.
 *
 * A claim is dead when its process is: on the same host, boot and pid namespace that is looked up
 * in /proc; elsewhere it is dead once its time stamp has not changed while this process watched it
 * for stale_after_s on its own steady clock, so that no two clocks are ever compared.
 *
 * A dead NAME.0 is not removed, which two processes could not do safely at once, but succeeded by
 * creating NAME.1, again with O_EXCL; whoever creates it looks back whether NAME.0 is still the one
 * found dead and whether there is a NAME.2, and gives up if not. Releasing removes the
 * predecessors, then the own file.
 *
 * A claim says who works, never what is done: that is in the manifest, to be read after claiming.
 */
struct claims;

/* Creates the folder if need be. NULL on failure. */
struct claims *claims_open(const char *folder, int stale_after_s, struct dk_error *err);
/* Releases what is held. */
void claims_close(struct claims *claims);

enum claim_result { CLAIM_MINE, CLAIM_TAKEN, CLAIM_FAILED };
enum claim_result claims_take(struct claims *claims, const char *name, struct dk_error *err);
/* Takes it, waiting as long as others hold it. */
bool claims_wait(struct claims *claims, const char *name, struct dk_error *err);
void claims_release(struct claims *claims, const char *name);
/* True if this process still has it; a process that slept too long may have been succeeded. */
bool claims_holds(struct claims *claims, const char *name);

/* Removes claims of dead processes that can be known at once. Returns how many others remain. */
size_t claims_sweep(struct claims *claims);

#endif
