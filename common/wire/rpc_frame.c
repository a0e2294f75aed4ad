/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/rpc_frame.h"
