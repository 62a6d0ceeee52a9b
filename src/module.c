/* SPDX-License-Identifier: Apache-2.0
 *
 * module.c - the entry function of a module. The build compiles this file into each module with
 * PAWL_MODULE_ENGINE set to the name of the module's pawl_engine. The file is separate from the
 * engine so that the objects of all engines can be linked into one library.
 */
#include "engine.h"

extern const pawl_engine PAWL_MODULE_ENGINE;

PAWL_API pawl_engine_module_fn pawl_engine_module;

PAWL_API const pawl_engine *pawl_engine_module(void)
{
    return &PAWL_MODULE_ENGINE;
}
