"""Every field of FIX 4.4 by its type: tag and name. Facts of the public specification (FIX 4.4 with errata 20030618).

`dictionary` reads these rows. A type is spelled as in the specification. The tags and names are those that Wireshark's
dissector has, except 327, which later versions renamed (tests/test_market_fix_field_table.py compares them).
"""

from __future__ import annotations

FIELDS_BY_TYPE = {
    "Amt": """
        12:Commission 118:NetMoney 119:SettlCurrAmt 137:MiscFeeAmt 154:AllocNetMoney 159:AccruedInterestAmt
        237:TotalTakedown 238:Concession 381:GrossTradeAmt 396:SideValue1 397:SideValue2 404:LiquidityValue
        406:FairValue 408:ValueOfFutures 412:OutMainCntryUIndex 540:TotalAccruedInterestAmt 708:PosAmt
        737:AllocSettlCurrAmt 738:InterestAtMaturity 741:AllocInterestAtMaturity 742:AllocAccruedInterestAmt
        746:OpenInterest 766:AllowableOneSidednessValue 858:SharedCommission 884:UnderlyingStartValue
        885:UnderlyingCurrentValue 886:UnderlyingEndValue 890:MaturityNetMoney 899:MarginExcess 900:TotalNetValue
        901:CashOutstanding 920:EndAccruedInterestAmt 921:StartCash 922:EndCash
    """,
    "Boolean": """
        43:PossDupFlag 97:PossResend 113:ReportToExch 114:LocateReqd 121:ForexReq 123:GapFillFlag 130:IOINaturalFlag
        141:ResetSeqNumFlag 208:NotifyBrokerOfCredit 258:TradedFlatSwitch 266:AggregatedBook 325:UnsolicitedIndicator
        328:InViewOfCommon 329:DueToRelated 377:SolicitedFlag 411:ExchangeForPhysical 464:TestMessageIndicator
        547:MDImplicitDelete 570:PreviouslyReported 575:OddLot 636:WorkingIndicator 650:LegalConfirm
        700:ReversalIndicator 719:ContraryInstructionIndicator 720:PriorSpreadIndicator 754:AutoAcceptIndicator
        797:CopyMsgIndicator 852:PublishTrdIndicator 893:LastFragment 912:LastRptRequested
    """,
    "char": """
        4:AdvSide 13:CommType 21:HandlInst 25:IOIQltyInd 28:IOITransType 29:LastCapacity 39:OrdStatus 40:OrdType
        54:Side 59:TimeInForce 61:Urgency 63:SettlType 71:AllocTransType 77:PositionEffect 81:ProcessCode 94:EmailType
        104:IOIQualifier 127:DKReason 150:ExecType 156:SettlCurrFxRateCalc 160:SettlInstMode 163:SettlInstTransType
        165:SettlInstSource 206:OptAttribute 263:SubscriptionRequestType 269:MDEntryType 274:TickDirection
        279:MDUpdateAction 281:MDReqRejReason 285:DeleteReason 317:UnderlyingOptAttribute 327:HaltReasonChar
        374:BidRequestTransType 385:MsgDirection 388:DiscretionInst 418:BidTradeType 419:BasisPxType
        433:ListExecInstType 434:CxlRejResponseTo 442:MultiLegReportingType 447:PartyIDSource 468:RoundingDirection
        480:CancellationRights 481:MoneyLaunderingStatus 484:ExecPriceType 497:FundRenewWaiv 506:RegistStatus
        514:RegistTransType 517:OwnershipType 525:NestedPartyIDSource 528:OrderCapacity 530:MassCancelRequestType
        531:MassCancelResponse 544:CashMargin 564:LegPositionEffect 573:MatchStatus 587:LegSettlType
        589:DayBookingInst 590:BookingUnit 591:PreallocMethod 613:LegOptAttribute 624:LegSide 695:QuoteQualifier
        744:AssignmentMethod 747:ExerciseMethod 758:Nested2PartyIDSource 783:SettlPartyIDSource 787:DlvyInstType
        950:Nested3PartyIDSource
    """,
    "Country": """
        421:Country 470:CountryOfIssue 475:InvestorCountryOfResidence 592:UnderlyingCountryOfIssue
        596:LegCountryOfIssue
    """,
    "Currency": """
        15:Currency 120:SettlCurrency 138:MiscFeeCurr 220:BenchmarkCurveCurrency 318:UnderlyingCurrency
        478:CashDistribCurr 479:CommCurrency 521:ContAmtCurr 556:LegCurrency 675:LegSettlCurrency
        676:LegBenchmarkCurveCurrency 736:AllocSettlCurrency 767:AllowableOneSidednessCurr 918:AgreementCurrency
        941:UnderlyingStrikeCurrency 942:LegStrikeCurrency 947:StrikeCurrency
    """,
    "data": """
        89:Signature 91:SecureData 96:RawData 213:XmlData 349:EncodedIssuer 351:EncodedSecurityDesc
        353:EncodedListExecInst 355:EncodedText 357:EncodedSubject 359:EncodedHeadline 361:EncodedAllocText
        363:EncodedUnderlyingIssuer 365:EncodedUnderlyingSecurityDesc 446:EncodedListStatusText 619:EncodedLegIssuer
        622:EncodedLegSecurityDesc
    """,
    "Exchange": """
        30:LastMkt 100:ExDestination 207:SecurityExchange 275:MDMkt 308:UnderlyingSecurityExchange
        616:LegSecurityExchange
    """,
    "float": """
        155:SettlCurrFxRate 211:PegOffsetValue 228:Factor 231:ContractMultiplier 246:UnderlyingFactor 253:LegFactor
        389:DiscretionOffsetValue 436:UnderlyingContractMultiplier 469:RoundingModulus 485:ExecPriceAdjustment
        520:ContAmtValue 614:LegContractMultiplier 623:LegRatioQty 656:SettlCurrBidFxRate 657:SettlCurrOfferFxRate
        811:PriceDelta 850:TargetStrategyPerformance
    """,
    "int": """
        67:ListSeqNo 68:TotNoOrders 74:AvgPxPrecision 82:NoRpts 83:RptSeq 87:AllocStatus 88:AllocRejCode
        98:EncryptMethod 102:CxlRejReason 103:OrdRejReason 108:HeartBtInt 157:NumDaysInterest 169:StandInstDbType
        172:SettlDeliveryType 197:AllocLinkType 201:PutOrCall 203:CoveredOrUncovered 209:AllocHandlInst
        216:RoutingType 226:RepurchaseTerm 244:UnderlyingRepurchaseTerm 251:LegRepurchaseTerm 264:MarketDepth
        265:MDUpdateType 287:SellerDays 290:MDEntryPositionNo 297:QuoteStatus 298:QuoteCancelType
        300:QuoteRejectReason 301:QuoteResponseLevel 303:QuoteRequestType 304:TotNoQuoteEntries
        315:UnderlyingPutOrCall 321:SecurityRequestType 323:SecurityResponseType 326:SecurityTradingStatus
        334:Adjustment 338:TradSesMethod 339:TradSesMode 340:TradSesStatus 346:NumberOfOrders
        368:QuoteEntryRejectReason 371:RefTagID 373:SessionRejectReason 378:ExecRestatementReason
        380:BusinessRejectReason 393:TotNoRelatedSym 394:BidType 395:NumTickets 399:BidDescriptorType 401:SideValueInd
        409:LiquidityIndType 414:ProgRptReqs 415:ProgPeriodInterval 416:IncTaxInd 417:NumBidders 422:TotNoStrikes
        423:PriceType 427:GTBookingInst 429:ListStatusType 430:NetGrossInd 431:ListOrderStatus
        441:LiquidityNumSecurities 452:PartyRole 460:Product 462:UnderlyingProduct 477:DistribPaymentMethod
        487:TradeReportTransType 492:PaymentMethod 495:TaxAdvantageType 507:RegistRejReasonCode 519:ContAmtType
        522:OwnerType 533:TotalAffectedOrders 537:QuoteType 538:NestedPartyRole 549:CrossType 550:CrossPrioritization
        557:TotNoSecurityTypes 559:SecurityListRequestType 560:SecurityRequestResult 563:MultiLegRptTypeReq
        565:LegCoveredOrUncovered 567:TradSesStatusRejReason 569:TradeRequestType 577:ClearingInstruction
        581:AccountType 582:CustOrderCapacity 585:MassStatusReqType 607:LegProduct 626:AllocType 638:PriorityIndicator
        658:QuoteRequestRejectReason 660:AcctIDSource 661:AllocAcctIDSource 663:BenchmarkPriceType 665:ConfirmStatus
        666:ConfirmTransType 668:DeliveryForm 680:LegBenchmarkPriceType 686:LegPriceType 690:LegSwapType
        692:QuotePriceType 694:QuoteRespType 698:YieldRedemptionPriceType 706:PosQtyStatus 709:PosTransType
        712:PosMaintAction 718:AdjustmentType 722:PosMaintStatus 723:PosMaintResult 724:PosReqType
        725:ResponseTransportType 727:TotalNumPosReports 728:PosReqResult 729:PosReqStatus 731:SettlPriceType
        733:UnderlyingSettlPriceType 748:TotNumTradeReports 749:TradeRequestResult 750:TradeRequestStatus
        751:TradeReportRejectReason 752:SideMultiLegReportingType 759:Nested2PartyRole 770:TrdRegTimestampType
        773:ConfirmType 774:ConfirmRejReason 775:BookingType 776:IndividualAllocRejCode 780:AllocSettlInstType
        784:SettlPartyRole 786:SettlPartySubIDType 788:TerminationType 792:SettlInstReqRejCode 794:AllocReportType
        796:AllocCancReplaceReason 798:AllocAccountType 803:PartySubIDType 805:NestedPartySubIDType
        807:Nested2PartySubIDType 808:AllocIntermedReqType 812:ApplQueueMax 813:ApplQueueDepth 814:ApplQueueResolution
        815:ApplQueueAction 819:AvgPxIndicator 826:TradeAllocIndicator 827:ExpirationCycle 828:TrdType 829:TrdSubType
        832:TotNumAssignmentReports 835:PegMoveType 836:PegOffsetType 837:PegLimitType 838:PegRoundDirection
        840:PegScope 841:DiscretionMoveType 842:DiscretionOffsetType 843:DiscretionLimitType
        844:DiscretionRoundDirection 846:DiscretionScope 847:TargetStrategy 851:LastLiquidityInd 853:ShortSaleReason
        854:QtyType 855:SecondaryTrdType 856:TradeReportType 857:AllocNoOrdersType 865:EventType 871:InstrAttribType
        875:CPProgram 891:MiscFeeBasis 892:TotNoAllocs 895:CollAsgnReason 896:CollInquiryQualifier
        903:CollAsgnTransType 905:CollAsgnRespType 906:CollAsgnRejectReason 910:CollStatus 911:TotNumReports
        919:DeliveryType 924:UserRequestType 926:UserStatus 928:StatusValue 935:NetworkRequestType
        937:NetworkStatusResponseType 939:TrdRptStatus 940:AffirmStatus 944:CollAction 945:CollInquiryStatus
        946:CollInquiryResult 951:Nested3PartyRole 954:Nested3PartySubIDType
    """,
    "Length": """
        9:BodyLength 90:SecureDataLen 93:SignatureLength 95:RawDataLength 212:XmlDataLen 348:EncodedIssuerLen
        350:EncodedSecurityDescLen 352:EncodedListExecInstLen 354:EncodedTextLen 356:EncodedSubjectLen
        358:EncodedHeadlineLen 360:EncodedAllocTextLen 362:EncodedUnderlyingIssuerLen
        364:EncodedUnderlyingSecurityDescLen 383:MaxMessageSize 445:EncodedListStatusTextLen 618:EncodedLegIssuerLen
        621:EncodedLegSecurityDescLen
    """,
    "LocalMktDate": """
        64:SettlDate 75:TradeDate 193:SettlDate2 224:CouponPaymentDate 225:IssueDate 229:TradeOriginationDate
        230:ExDate 240:RedemptionDate 241:UnderlyingCouponPaymentDate 242:UnderlyingIssueDate
        247:UnderlyingRedemptionDate 248:LegCouponPaymentDate 249:LegIssueDate 254:LegRedemptionDate
        259:BasisFeatureDate 432:ExpireDate 486:DateOfBirth 490:CardExpDate 503:CardStartDate 504:PaymentDate
        541:MaturityDate 542:UnderlyingMaturityDate 588:LegSettlDate 611:LegMaturityDate 696:YieldRedemptionDate
        701:YieldCalcDate 715:ClearingBusinessDate 739:LegDatedDate 743:DeliveryDate 866:EventDate 873:DatedDate
        874:InterestAccrualDate 915:AgreementDate 916:StartDate 917:EndDate 956:LegInterestAccrualDate
    """,
    "MonthYear": """
        200:MaturityMonthYear 313:UnderlyingMaturityMonthYear 610:LegMaturityMonthYear 667:ContractSettlMonth
        955:LegContractSettlMonth
    """,
    "MultipleValueString": """
        18:ExecInst 276:QuoteCondition 277:TradeCondition 286:OpenCloseSettlFlag 291:FinancialStatus
        292:CorporateAction 529:OrderRestrictions 546:Scope
    """,
    "NumInGroup": """
        33:NoLinesOfText 73:NoOrders 78:NoAllocs 85:NoDlvyInst 124:NoExecs 136:NoMiscFees 146:NoRelatedSym
        199:NoIOIQualifiers 215:NoRoutingIDs 232:NoStipulations 267:NoMDEntryTypes 268:NoMDEntries 295:NoQuoteEntries
        296:NoQuoteSets 382:NoContraBrokers 384:NoMsgTypes 386:NoTradingSessions 398:NoBidDescriptors
        420:NoBidComponents 428:NoStrikes 453:NoPartyIDs 454:NoSecurityAltID 457:NoUnderlyingSecurityAltID
        473:NoRegistDtls 510:NoDistribInsts 518:NoContAmts 534:NoAffectedOrders 539:NoNestedPartyIDs 552:NoSides
        555:NoLegs 558:NoSecurityTypes 576:NoClearingInstructions 580:NoDates 604:NoLegSecurityAltID 627:NoHops
        670:NoLegAllocs 683:NoLegStipulations 702:NoPositions 711:NoUnderlyings 735:NoQuoteQualifiers 753:NoPosAmt
        756:NoNested2PartyIDs 768:NoTrdRegTimestamps 778:NoSettlInst 781:NoSettlPartyIDs 801:NoSettlPartySubIDs
        802:NoPartySubIDs 804:NoNestedPartySubIDs 806:NoNested2PartySubIDs 816:NoAltMDSource 862:NoCapacities
        864:NoEvents 870:NoInstrAttrib 887:NoUnderlyingStips 897:NoTrades 936:NoCompIDs 938:NoCollInquiryQualifier
        948:NoNested3PartyIDs 952:NoNested3PartySubIDs
    """,
    "Percentage": """
        158:AccruedInterestRate 223:CouponRate 227:RepurchaseRate 236:Yield 245:UnderlyingRepurchaseRate
        252:LegRepurchaseRate 402:LiquidityPctLow 403:LiquidityPctHigh 405:EFPTrackingError 407:OutsideIndexPct
        410:WtAverageLiquidity 413:CrossPercent 435:UnderlyingCouponRate 512:DistribPercentage 516:OrderPercent
        615:LegCouponRate 632:BidYield 633:MidYield 634:OfferYield 765:AllowableOneSidednessPct 849:ParticipationRate
        869:PctAtRisk 898:MarginRatio
    """,
    "Price": """
        6:AvgPx 31:LastPx 44:Price 99:StopPx 132:BidPx 133:OfferPx 140:PrevClosePx 153:AllocAvgPx 188:BidSpotRate
        190:OfferSpotRate 194:LastSpotRate 202:StrikePrice 260:BasisFeaturePrice 270:MDEntryPx
        316:UnderlyingStrikePrice 332:HighPx 333:LowPx 366:AllocPrice 426:DayAvgPx 566:LegPrice 612:LegStrikePrice
        631:MidPx 637:LegLastPx 640:Price2 645:MktBidPx 646:MktOfferPx 651:UnderlyingLastPx 662:BenchmarkPrice
        669:LastParPx 679:LegBenchmarkPrice 681:LegBidPx 684:LegOfferPx 697:YieldRedemptionPrice 730:SettlPrice
        732:UnderlyingSettlPrice 734:PriorSettlPrice 799:OrderAvgPx 810:UnderlyingPx 839:PeggedPrice
        845:DiscretionPrice 860:AvgParPx 861:ReportedPx 867:EventPx 882:UnderlyingDirtyPrice 883:UnderlyingEndPrice
    """,
    "PriceOffset": """
        189:BidForwardPoints 191:OfferForwardPoints 195:LastForwardPoints 218:Spread 451:NetChgPrevDay
        639:PriceImprovement 641:LastForwardPoints2 642:BidForwardPoints2 643:OfferForwardPoints2 834:ThresholdAmount
    """,
    "Qty": """
        14:CumQty 32:LastQty 38:OrderQty 53:Quantity 80:AllocQty 84:CxlQty 110:MinQty 111:MaxFloor 134:BidSize
        135:OfferSize 151:LeavesQty 152:CashOrderQty 192:OrderQty2 210:MaxShow 271:MDEntrySize 293:DefBidSize
        294:DefOfferSize 330:BuyVolume 331:SellVolume 387:TotalVolumeTraded 424:DayOrderQty 425:DayCumQty
        437:ContraTradeQty 561:RoundLot 562:MinTradeVol 647:MinBidSize 648:MinOfferSize 652:UnderlyingLastQty
        673:LegAllocQty 687:LegQty 704:LongQty 705:ShortQty 745:AssignmentUnit 800:OrderBookingQty
        863:OrderCapacityQty 879:UnderlyingQty
    """,
    "SeqNum": """
        7:BeginSeqNo 16:EndSeqNo 34:MsgSeqNum 36:NewSeqNo 45:RefSeqNum 369:LastMsgSeqNumProcessed 630:HopRefID
        789:NextExpectedMsgSeqNum
    """,
    "String": """
        1:Account 2:AdvId 3:AdvRefID 5:AdvTransType 8:BeginString 10:CheckSum 11:ClOrdID 17:ExecID 19:ExecRefID
        22:SecurityIDSource 23:IOIID 26:IOIRefID 27:IOIQty 35:MsgType 37:OrderID 41:OrigClOrdID 48:SecurityID
        49:SenderCompID 50:SenderSubID 55:Symbol 56:TargetCompID 57:TargetSubID 58:Text 65:SymbolSfx 66:ListID
        69:ListExecInst 70:AllocID 72:RefAllocID 79:AllocAccount 106:Issuer 107:SecurityDesc 112:TestReqID
        115:OnBehalfOfCompID 116:OnBehalfOfSubID 117:QuoteID 128:DeliverToCompID 129:DeliverToSubID 131:QuoteReqID
        139:MiscFeeType 142:SenderLocationID 143:TargetLocationID 144:OnBehalfOfLocationID 145:DeliverToLocationID
        147:Subject 148:Headline 149:URLLink 161:AllocText 162:SettlInstID 164:EmailThreadID 167:SecurityType
        170:StandInstDbName 171:StandInstDbID 196:AllocLinkID 198:SecondaryOrderID 214:SettlInstRefID 217:RoutingID
        221:BenchmarkCurveName 222:BenchmarkCurvePoint 233:StipulationType 234:StipulationValue 235:YieldType
        239:RepoCollateralSecurityType 243:UnderlyingRepoCollateralSecurityType 250:LegRepoCollateralSecurityType
        255:CreditRating 256:UnderlyingCreditRating 257:LegCreditRating 262:MDReqID 278:MDEntryID 280:MDEntryRefID
        282:MDEntryOriginator 283:LocationID 284:DeskID 288:MDEntryBuyer 289:MDEntrySeller 299:QuoteEntryID
        302:QuoteSetID 305:UnderlyingSecurityIDSource 306:UnderlyingIssuer 307:UnderlyingSecurityDesc
        309:UnderlyingSecurityID 310:UnderlyingSecurityType 311:UnderlyingSymbol 312:UnderlyingSymbolSfx
        320:SecurityReqID 322:SecurityResponseID 324:SecurityStatusReqID 335:TradSesReqID 336:TradingSessionID
        337:ContraTrader 347:MessageEncoding 372:RefMsgType 375:ContraBroker 376:ComplianceID 379:BusinessRejectRefID
        390:BidID 391:ClientBidID 392:ListName 400:BidDescriptor 444:ListStatusText 448:PartyID 455:SecurityAltID
        456:SecurityAltIDSource 458:UnderlyingSecurityAltID 459:UnderlyingSecurityAltIDSource 461:CFICode
        463:UnderlyingCFICode 466:BookingRefID 467:IndividualAllocID 471:StateOrProvinceOfIssue 472:LocaleOfIssue
        474:MailingDtls 476:PaymentRef 482:MailingInst 488:CardHolderName 489:CardNumber 491:CardIssNum
        493:RegistAcctType 494:Designation 496:RegistRejReasonText 498:CashDistribAgentName 499:CashDistribAgentCode
        500:CashDistribAgentAcctNumber 501:CashDistribPayRef 502:CashDistribAgentAcctName 505:PaymentRemitterID
        508:RegistRefID 509:RegistDtls 511:RegistEmail 513:RegistID 523:PartySubID 524:NestedPartyID
        526:SecondaryClOrdID 527:SecondaryExecID 532:MassCancelRejectReason 535:AffectedOrderID
        536:AffectedSecondaryOrderID 543:InstrRegistry 545:NestedPartySubID 548:CrossID 551:OrigCrossID 553:Username
        554:Password 568:TradeRequestID 571:TradeReportID 572:TradeReportRefID 574:MatchType 578:TradeInputSource
        579:TradeInputDevice 583:ClOrdLinkID 584:MassStatusReqID 593:UnderlyingStateOrProvinceOfIssue
        594:UnderlyingLocaleOfIssue 595:UnderlyingInstrRegistry 597:LegStateOrProvinceOfIssue 598:LegLocaleOfIssue
        599:LegInstrRegistry 600:LegSymbol 601:LegSymbolSfx 602:LegSecurityID 603:LegSecurityIDSource
        605:LegSecurityAltID 606:LegSecurityAltIDSource 608:LegCFICode 609:LegSecurityType 617:LegIssuer
        620:LegSecurityDesc 625:TradingSessionSubID 628:HopCompID 635:ClearingFeeIndicator 644:RFQReqID
        649:QuoteStatusReqID 654:LegRefID 655:ContraLegRefID 659:SideComplianceID 664:ConfirmID 671:LegAllocAccount
        672:LegIndividualAllocID 674:LegAllocAcctIDSource 677:LegBenchmarkCurveName 678:LegBenchmarkCurvePoint
        682:LegIOIQty 688:LegStipulationType 689:LegStipulationValue 691:Pool 693:QuoteRespID 699:BenchmarkSecurityID
        703:PosType 707:PosAmtType 710:PosReqID 713:OrigPosReqRefID 714:PosMaintRptRefID 716:SettlSessID
        717:SettlSessSubID 721:PosMaintRptID 726:ResponseDestination 740:LegPool 755:AllocReportID 757:Nested2PartyID
        760:Nested2PartySubID 761:BenchmarkSecurityIDSource 762:SecuritySubType 763:UnderlyingSecuritySubType
        764:LegSecuritySubType 771:TrdRegTimestampOrigin 772:ConfirmRefID 777:SettlInstMsgID 782:SettlPartyID
        785:SettlPartySubID 790:OrdStatusReqID 791:SettlInstReqID 793:SecondaryAllocID 795:AllocReportRefID
        817:AltMDSourceID 818:SecondaryTradeReportID 820:TradeLinkID 821:OrderInputDevice
        822:UnderlyingTradingSessionID 823:UnderlyingTradingSessionSubID 824:TradeLegRefID 825:ExchangeRule
        830:TransferReason 833:AsgnRptID 848:TargetStrategyParameters 859:ConfirmReqID 868:EventText
        872:InstrAttribValue 876:CPRegType 877:UnderlyingCPProgram 878:UnderlyingCPRegType 880:TrdMatchID
        881:SecondaryTradeReportRefID 888:UnderlyingStipType 889:UnderlyingStipValue 894:CollReqID 902:CollAsgnID
        904:CollRespID 907:CollAsgnRefID 908:CollRptID 909:CollInquiryID 913:AgreementDesc 914:AgreementID
        923:UserRequestID 925:NewPassword 927:UserStatusText 929:StatusText 930:RefCompID 931:RefSubID
        932:NetworkResponseID 933:NetworkRequestID 934:LastNetworkResponseID 943:TimeBracket 949:Nested3PartyID
        953:Nested3PartySubID
    """,
    "UTCDateOnly": """
        272:MDEntryDate
    """,
    "UTCTimeOnly": """
        273:MDEntryTime
    """,
    "UTCTimestamp": """
        42:OrigTime 52:SendingTime 60:TransactTime 62:ValidUntilTime 122:OrigSendingTime 126:ExpireTime
        168:EffectiveTime 341:TradSesStartTime 342:TradSesOpenTime 343:TradSesPreCloseTime 344:TradSesCloseTime
        345:TradSesEndTime 367:QuoteSetValidUntilTime 438:ContraTradeTime 443:StrikeTime 483:TransBkdTime
        515:ExecValuationPoint 586:OrigOrdModTime 629:HopSendingTime 769:TrdRegTimestamp 779:LastUpdateTime
    """,
}
