"""What all backbones share: the names that they are registered by."""

import pytest

from remask.models import LladaMDM, SudokuMDM, register_backbone
from remask.models.backbones import BACKBONES


def test_every_backbone_is_registered_with_its_config():
    for kind, backbone in BACKBONES.items():
        assert backbone.kind == kind
        assert backbone.config_type.__name__.endswith("Config")


def test_a_kind_belongs_to_one_backbone():
    with pytest.raises(ValueError, match=r"Other cannot be registered as 'sudoku': that is .*MDM;"):

        @register_backbone
        class Other(SudokuMDM):
            pass

    assert BACKBONES["sudoku"] is SudokuMDM


def test_a_model_type_belongs_to_one_backbone_unless_an_architecture_tells_them_apart():
    with pytest.raises(
        ValueError, match="cannot read model_type 'llada': a llada does; set an arc"
    ):

        @register_backbone
        class Other(LladaMDM):
            kind = "other"

    assert "other" not in BACKBONES


def test_a_backbone_that_reads_no_published_folders_says_so(tmp_path):
    with pytest.raises(NotImplementedError, match="SudokuMDM has model_types but no read_publish"):
        SudokuMDM.read_published({}, tmp_path)
