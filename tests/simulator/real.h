/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** real - the function of this name behind ours */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>

#define REAL(fn)                                                                                   \
	({                                                                                         \
		static __typeof__(&fn) real_;                                                      \
		if (!real_)                                                                        \
			real_ = (__typeof__(&fn))dlsym(RTLD_NEXT, #fn);                            \
		real_;                                                                             \
	})
