/* lost_file.h - a sentence in place of a crash when a file in use is cut short. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_LOST_FILE_H
#define CLI_LOST_FILE_H

/*
 * Model files are mapped, so one that is cut short or cannot be read any more is noticed by SIGBUS
 * at the byte that is gone. From then on the program says which file it was and ends with status 1.
 */
void lost_file_install(void);

#endif
