#pragma once

/// Marks what programs may call in libctran: the functions and classes of include/ctran. Nothing
/// else is visible in that library.
#define CTRAN_API __attribute__((visibility("default")))
