"""The compiler's metadata: what is not there is no zero."""

import pytest

from gfxlab.code import metadata

ASM = """\t.amdgpu_metadata
---
amdhsa.kernels:
  - .name: kernel
    .vgpr_count: 12
...
"""


def test_a_field_is_read_as_yaml_and_a_missing_one_is_an_error():
    facts = metadata.read(ASM)
    assert (facts["name"], facts["vgpr_count"]) == ("kernel", 12)
    with pytest.raises(ValueError, match="no field vgpr_spill_count; it has name, vgpr_count"):
        facts["vgpr_spill_count"]
    with pytest.raises(ValueError, match="no .amdgpu_metadata"):
        metadata.read("s_endpgm")
